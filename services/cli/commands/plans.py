"""`ninaku plan`: versions of plans and who has which."""

import asyncio
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from services.cli.administration import administration
from services.cli.failures import Failure
from services.cli.operators import state_folder
from services.cli.tables import aligned

app = typer.Typer(no_args_is_help=True, help="Plans: list, publish a version, move an organization.")

State = Annotated[Path | None, typer.Option("--state", help="Folder of the local stack.")]


@app.command("list")
def list_all(state: State = None) -> None:
    """List every version of every plan."""

    async def run() -> str:
        rows: list[tuple[str, ...]] = []
        async with administration(state_folder(state)) as operator:
            for found in await operator.plans():
                limits = [f"{code} {'unlimited' if value is None else value}" for code, value in found.limits.items()]
                rows.append(
                    (
                        found.plan,
                        str(found.version),
                        found.status,
                        str(found.organizations),
                        ", ".join(found.capabilities),
                        ", ".join(sorted(limits)),
                    )
                )
        return aligned(("plan", "version", "status", "organizations", "capabilities", "limits"), rows)

    typer.echo(asyncio.run(run()))


@app.command()
def publish(
    plan: Annotated[str, typer.Argument(help="Code of the plan.")],
    capability: Annotated[list[str] | None, typer.Option(help="Adds one; may be repeated.")] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="CODE=NUMBER or CODE=unlimited; may be repeated.", metavar="CODE=VALUE")
    ] = None,
    state: State = None,
) -> None:
    """Publish the next version: everything of the active one, with additions. Organizations stay where they are."""
    limits = dict(_limit(text) for text in limit or [])

    async def run() -> int:
        async with administration(state_folder(state)) as operator:
            return await operator.publish_plan(plan, capability or [], limits)

    typer.echo(f"{plan} {asyncio.run(run())} is active")


@app.command()
def move(
    organization: Annotated[UUID, typer.Argument(help="Id of the organization.")],
    plan: Annotated[str, typer.Argument(help="Code of the plan.")],
    version: Annotated[int | None, typer.Option(help="A published version; the active one by default.")] = None,
    state: State = None,
) -> None:
    """Give an organization a version of a plan."""

    async def run() -> UUID:
        async with administration(state_folder(state)) as operator:
            return await operator.move_subscription(organization, plan, version)

    typer.echo(f"subscription {asyncio.run(run())}")


def _limit(text: str) -> tuple[str, int | None]:
    code, separator, value = text.partition("=")
    if not separator or not code or not (value == "unlimited" or value.isdecimal()):
        raise Failure(f"--limit {text} is not CODE=NUMBER or CODE=unlimited.")
    return code, None if value == "unlimited" else int(value)
