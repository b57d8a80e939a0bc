"""`ninaku member`: people and what they may do."""

import asyncio
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from services.cli.administration import administration
from services.cli.operators import state_folder
from services.cli.tables import aligned

app = typer.Typer(no_args_is_help=True, help="Members of organizations: add, list.")

State = Annotated[Path | None, typer.Option("--state", help="Folder of the local stack.")]


@app.command()
def add(
    organization: Annotated[UUID, typer.Option(help="Id of the organization.")],
    email: Annotated[str, typer.Option(help="Known addresses keep their user.")],
    role: Annotated[str, typer.Option(help="organization_owner, manager, cashier or waiter.")],
    name: Annotated[str | None, typer.Option(help="The person's name; the address by default.")] = None,
    unit: Annotated[
        UUID | None, typer.Option(help="Business unit that the role is for; organization-wide without.")
    ] = None,
    state: State = None,
) -> None:
    """Give a person a role in an organization and print the membership's id."""

    async def run() -> UUID:
        async with administration(state_folder(state)) as operator:
            return await operator.add_member(organization, email, name or email, role, unit)

    typer.echo(asyncio.run(run()))


@app.command("list")
def list_all(
    organization: Annotated[UUID, typer.Option(help="Id of the organization.")],
    state: State = None,
) -> None:
    """List who holds which role."""

    async def run() -> str:
        rows: list[tuple[str, ...]] = []
        async with administration(state_folder(state)) as operator:
            for found in await operator.members(organization):
                where = found.business_unit or "the organization"
                rows.append(
                    (
                        str(found.membership_id),
                        found.email,
                        found.display_name,
                        found.role or "none",
                        where,
                        found.status,
                    )
                )
        return aligned(("membership", "e-mail", "name", "role", "for", "status"), rows)

    typer.echo(asyncio.run(run()))
