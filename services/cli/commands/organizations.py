"""`ninaku organization`: tenants."""

import asyncio
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from services.cli.administration import administration
from services.cli.operators import state_folder
from services.cli.tables import aligned

app = typer.Typer(no_args_is_help=True, help="Organizations: create, list, add a business unit.")

State = Annotated[Path | None, typer.Option("--state", help="Folder of the local stack.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The organization's name.")],
    plan: Annotated[str, typer.Option(help="Code of the plan whose active version it gets.")] = "pionero",
    state: State = None,
) -> None:
    """Create an organization and print its id."""

    async def run() -> UUID:
        async with administration(state_folder(state)) as operator:
            return await operator.create_organization(name, plan)

    typer.echo(asyncio.run(run()))


@app.command("list")
def list_all(state: State = None) -> None:
    """List organizations with plan and usage."""

    async def run() -> str:
        rows: list[tuple[str, ...]] = []
        async with administration(state_folder(state)) as operator:
            for found in await operator.organizations():
                plan = (found.plan or "none") + ("" if found.entitled else " (lapsed)")
                stored = f"{found.stored_bytes / 2**20:.1f} MiB"
                rows.append((str(found.id), found.name, plan, str(found.active_assets), stored))
        return aligned(("id", "name", "plan", "assets", "stored"), rows)

    typer.echo(asyncio.run(run()))


@app.command("add-unit")
def add_unit(
    organization: Annotated[UUID, typer.Option(help="Id of the organization.")],
    name: Annotated[str, typer.Argument(help="The business unit's name.")],
    state: State = None,
) -> None:
    """Add a business unit and print its id."""

    async def run() -> UUID:
        async with administration(state_folder(state)) as operator:
            return await operator.create_business_unit(organization, name)

    typer.echo(asyncio.run(run()))
