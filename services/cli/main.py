"""`ninaku`: the local stack, the database, people and plans, storage, jobs, assets, and uploads."""

import asyncio
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from services.cli.commands import assets, database, jobs, members, organizations, plans, sessions, storage
from services.cli.failures import Failure
from services.cli.operators import state_folder

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__, rich_markup_mode=None
)
app.add_typer(database.app, name="db")
app.add_typer(organizations.app, name="organization")
app.add_typer(members.app, name="member")
app.add_typer(sessions.app, name="session")
app.add_typer(plans.app, name="plan")
app.add_typer(storage.app, name="storage")
app.add_typer(jobs.app, name="jobs")
app.add_typer(assets.app, name="assets")

State = Annotated[
    Path | None, typer.Option("--state", help="Folder with the stack's data; .ninaku in the project by default.")
]


@app.command()
def up(
    port_base: Annotated[
        int | None, typer.Option("--port-base", help="First of the twenty ports to use; kept for the next time.")
    ] = None,
    state: State = None,
    demo: Annotated[bool, typer.Option("--demo", help="Take the bundled photo through the main job first.")] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Start PostgreSQL, object storage, every service and one worker; stay up until Ctrl-C."""
    from services.cli.local.stack import LocalStack, UpOptions

    level = log_level.upper()
    if level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise Failure("--log-level is one of DEBUG, INFO, WARNING, ERROR.")
    options = UpOptions(state=state_folder(state), port_base=port_base, demo=demo, log_level=level)
    asyncio.run(LocalStack(options, Console()).run())


@app.command()
def upload(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JPEG, PNG, WebP or AVIF, up to 10 MiB each.")],
    state: State = None,
    gateway: Annotated[
        str | None, typer.Option(envvar="NINAKU_GATEWAY_URL", help="The local stack's by default.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(envvar="NINAKU_SESSION", help="The local demo owner's by default.")
    ] = None,
    organization: Annotated[str | None, typer.Option(envvar="NINAKU_ORGANIZATION_ID")] = None,
) -> None:
    """Send photos through the main job and print where each is served."""
    from services.cli.uploading.command import gateway_access, upload_files

    access = gateway_access(state_folder(state), gateway, session, organization)
    if not asyncio.run(upload_files(access, files, Console())):
        raise typer.Exit(1)


def main() -> int:
    """Runs one command and returns its exit status; what stands in the way is said in words."""
    errors = Console(stderr=True)
    try:
        app(prog_name="ninaku")  # answers wrong options and --help itself, and leaves with SystemExit
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        return 130
    except BaseExceptionGroup as group:
        return _report(errors, _innermost(group))
    except Exception as error:
        return _report(errors, error)
    return 0


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _report(errors: Console, error: BaseException) -> int:
    message = str(error)
    if not _speaks_for_itself(error):
        if os.environ.get("NINAKU_DEBUG"):
            traceback.print_exception(error)
        message = f"{type(error).__name__}: {message}\nThis was not expected; NINAKU_DEBUG=1 shows where it happened."
    errors.print(f"[red]✗[/red] {escape(message)}", highlight=False, soft_wrap=True)
    return 1


def _speaks_for_itself(error: BaseException) -> bool:
    from database.migrate import MigrationRefused
    from libs.settings.errors import SettingsError
    from services.cli.local.children import StartFailed
    from services.cli.local.object_storage import ObjectStorageUnavailable
    from services.cli.local.postgres import PostgresUnavailable
    from services.cli.local.state import StateProblem

    servers = (PostgresUnavailable, ObjectStorageUnavailable, MigrationRefused)
    return isinstance(error, (Failure, StateProblem, StartFailed, SettingsError, *servers))


if __name__ == "__main__":
    sys.exit(main())
