"""`ninaku session`: tokens that people act with."""

import asyncio
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from services.cli.administration import administration
from services.cli.failures import Failure
from services.cli.operators import state_folder
from services.cli.tables import aligned

app = typer.Typer(no_args_is_help=True, help="Sessions: create, list, revoke.")

State = Annotated[Path | None, typer.Option("--state", help="Folder of the local stack.")]


@app.command()
def create(
    email: Annotated[str, typer.Option(help="Whose session it is.")],
    state: State = None,
) -> None:
    """Create a session and print its token, once: only a hash of it is kept.

    It ends 12 hours after its last use and 30 days after now.
    """

    async def run() -> tuple[UUID, str]:
        async with administration(state_folder(state)) as operator:
            return await operator.create_session(email)

    session_id, token = asyncio.run(run())
    typer.echo(f"session {session_id}", err=True)
    typer.echo(token)


@app.command("list")
def list_all(
    email: Annotated[str | None, typer.Option(help="Only this person's.")] = None,
    state: State = None,
) -> None:
    """List sessions, newest first."""

    async def run() -> str:
        rows: list[tuple[str, ...]] = []
        async with administration(state_folder(state)) as operator:
            for found in await operator.sessions(email):
                seen, made = (f"{moment:%Y-%m-%d %H:%M}" for moment in (found.last_seen_at, found.created_at))
                rows.append((str(found.id), found.email, made, seen, "alive" if found.lives else "over"))
        return aligned(("session", "e-mail", "created", "last seen", ""), rows)

    typer.echo(asyncio.run(run()))


@app.command()
def revoke(
    session: Annotated[UUID | None, typer.Argument(help="Id of one session.")] = None,
    email: Annotated[str | None, typer.Option(help="Every session of this person instead.")] = None,
    state: State = None,
) -> None:
    """End one session, or all of a person's, at once."""
    if (session is None) == (email is None):
        raise Failure("Name a session's id, or a person with --email.")

    async def run() -> int:
        async with administration(state_folder(state)) as operator:
            if session is not None:
                return int(await operator.revoke_session(session))
            return await operator.revoke_sessions_of(email or "")

    count = asyncio.run(run())
    typer.echo("revoked" if count == 1 else f"{count} revoked" if count else "nothing to revoke")
