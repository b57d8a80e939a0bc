"""`ninaku db`: the database's life."""

import asyncio
import json
import os
import shutil
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from database import migrate as migrations
from services.cli.failures import Failure
from services.cli.operators import DATABASE, DatabaseAccess, database_access, explained, state_folder

app = typer.Typer(no_args_is_help=True, help="The database: create, migrate, status, reset.")

State = Annotated[Path | None, typer.Option("--state", help="Folder of the local stack.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


class PublicProvider(StrEnum):
    """Where public renditions of new assets lie."""

    R2 = "r2-public"
    S3 = "s3-public"


Admin = Annotated[
    str | None,
    typer.Option(
        envvar="NINAKU_ADMIN_DATABASE_URL",
        help="A server elsewhere: a login that may create roles and databases. The local stack's server without.",
        show_default=False,
    ),
]
Passwords = Annotated[
    Path | None,
    typer.Option("--passwords", help="With --admin: a JSON file with one password per login.", dir_okay=False),
]
Name = Annotated[str, typer.Option("--database", help="With --admin: the database's name.")]
Public = Annotated[PublicProvider, typer.Option("--public", help="Where public renditions lie: R2, or S3 (plan B).")]


@app.command()
def create(
    admin: Admin = None,
    passwords: Passwords = None,
    database: Name = DATABASE,
    public: Public = PublicProvider.R2,
    state: State = None,
) -> None:
    """Make roles, logins and the database where they are missing, and install the schema. Repeatable."""

    async def run() -> None:
        if admin is not None:
            with explained():
                await migrations.create(admin, database, _read(passwords), public_provider=public.value)
            return
        folder = state_folder(state)
        if not folder.exists():
            folder.prepare().choose_ports(None)
        async with database_access(folder) as access:
            await migrations.create(_administrator(access), DATABASE, access.passwords, public_provider=public.value)

    asyncio.run(run())
    typer.echo("The database is there and up to date.")


@app.command()
def migrate(public: Public = PublicProvider.R2, state: State = None) -> None:
    """Install an empty database or bring an existing one up to date."""

    async def run() -> migrations.DatabaseStatus:
        async with database_access(state_folder(state)) as access:
            with explained():
                return await migrations.migrate(access.operator_dsn, public_provider=public.value)

    found = asyncio.run(run())
    typer.echo(f"The database is {found.state}; {len(found.applied)} migrations applied.")


@app.command()
def status(state: State = None) -> None:
    """Say where the database stands; status 1 when it is not up to date."""

    async def run() -> migrations.DatabaseStatus:
        async with database_access(state_folder(state)) as access:
            with explained():
                return await migrations.status(access.operator_dsn)

    found = asyncio.run(run())
    if found.problem is not None:
        raise Failure(found.problem[:1].upper() + found.problem[1:])
    typer.echo(f"The database is {found.state}; {len(found.applied)} migrations applied.")
    for name in found.pending:
        typer.echo(f"  pending: {name}")
    if found.state != "current":
        raise typer.Exit(1)


@app.command()
def reset(
    admin: Admin = None,
    passwords: Passwords = None,
    database: Name = DATABASE,
    public: Public = PublicProvider.R2,
    yes: Yes = False,
    state: State = None,
) -> None:
    """Delete the database with everything in it and create it anew; locally the stored photos as well."""
    folder = state_folder(state)
    where = f"the database {database} of the named server" if admin is not None else f"all data of {folder.path}"
    if admin is None and os.environ.get("DATABASE_URL"):
        raise Failure("DATABASE_URL is set: name the server with --admin, or unset it for the local stack.")
    if admin is None and folder.exists() and folder.is_running():
        raise Failure("The local stack is running. End it with Ctrl-C first.")
    if not yes and not typer.confirm(f"Delete {where}?"):
        raise typer.Abort

    async def run() -> None:
        if admin is not None:
            with explained():
                await migrations.reset(admin, database, _read(passwords), public_provider=public.value)
            return
        async with database_access(folder) as access:
            await migrations.reset(_administrator(access), DATABASE, access.passwords, public_provider=public.value)
        # The stored objects belonged to the assets that are gone.
        shutil.rmtree(folder.object_storage / "data", ignore_errors=True)
        folder.forget_demo()

    asyncio.run(run())
    typer.echo("The database is new and empty.")


def _administrator(access: DatabaseAccess) -> str:
    if access.admin_dsn is None:
        raise Failure(
            "Name the server with --admin (or NINAKU_ADMIN_DATABASE_URL): DATABASE_URL may not create databases."
        )
    return access.admin_dsn


def _read(path: Path | None) -> Mapping[str, str]:
    if path is None:
        raise Failure(f"Name a JSON file with --passwords: a password for each of {', '.join(migrations.LOGINS)}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"{path} cannot be read as JSON: {type(error).__name__}.") from None
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise Failure(f"{path} must be a JSON object of login and password.")
    return content
