"""`ninaku assets`: what a person in charge of data does to a single asset."""

import asyncio
import os
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from libs.assets.public_urls import PublicUrls
from services.cli.failures import Failure
from services.cli.local.object_storage import LocalObjectStorage
from services.cli.local.state import StateFolder
from services.cli.operators import state_folder
from services.cli.queue_display import claim_lines, receipt_lines
from services.cli.queue_operations import Erasure, ErasureResult, PurgeReceipt, QueueOperations, queue_operations

app = typer.Typer(no_args_is_help=True, help="Assets: erase one, and read the receipt.")

State = Annotated[Path | None, typer.Option("--state", help="Folder of the local stack.")]
_LOOK_SECONDS = 0.5


@app.command()
def erase(
    asset: Annotated[UUID, typer.Argument(help="Id of the asset.")],
    detach: Annotated[bool, typer.Option("--detach", help="Also when other services use it: they lose it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    wait: Annotated[float, typer.Option("--wait", min=0, max=3600, help="Seconds to wait for the receipt.")] = 120.0,
    state: State = None,
) -> None:
    """Delete an asset for good, at once, with every object and public copy, and print the receipt.

    Unfinished work fails first. An asset that another service uses stays, unless --detach. Repeating the command waits
    on, or prints the receipt again. There is no way back.
    """
    folder = state_folder(state)
    if not yes:
        typer.confirm(f"Delete asset {asset} for good?", abort=True, err=True)

    async def run() -> tuple[ErasureResult, PurgeReceipt | None]:
        async with queue_operations(folder) as operator:
            result = await operator.erase(asset, detach)
            if result.outcome in {Erasure.NOT_FOUND, Erasure.REFERENCED}:
                return result, None
            if result.claims:
                typer.echo(f"Taken from:\n{claim_lines(result)}", err=True)
            return result, await _receipt(operator, asset, wait)

    result, receipt = asyncio.run(run())
    if result.outcome is Erasure.NOT_FOUND:
        raise Failure("There is no such asset, and none of this id was ever erased.")
    if result.outcome is Erasure.REFERENCED:
        raise Failure(
            f"The asset is in use, so nothing was changed. It is used by:\n{claim_lines(result)}\n"
            "Remove it there first, or take it from them: ninaku assets erase --detach"
        )
    if receipt is None:
        raise Failure(
            f"The asset is archived and its deletion stands first in line (job {result.job_id}), but no worker has "
            f"finished it within {wait:.0f} s: its public URLs may still answer. Is a worker running that may purge? "
            "See: ninaku jobs status. Run this command again for the receipt."
        )
    typer.echo(receipt_lines(receipt, _public_urls(folder)))


@app.command()
def receipt(
    asset: Annotated[UUID, typer.Argument(help="Id of an erased asset.")],
    state: State = None,
) -> None:
    """Print the receipt of an asset that was erased, by command or because its time had come."""
    folder = state_folder(state)

    async def run() -> PurgeReceipt | None:
        async with queue_operations(folder) as operator:
            return await operator.receipt(asset)

    found = asyncio.run(run())
    if found is None:
        raise Failure("There is no receipt of this asset: it was never there, or is not erased.")
    typer.echo(receipt_lines(found, _public_urls(folder)))


async def _receipt(operator: QueueOperations, asset: UUID, wait: float) -> PurgeReceipt | None:
    loop = asyncio.get_running_loop()
    end = loop.time() + wait
    while True:
        found = await operator.receipt(asset)
        if found is not None or loop.time() >= end:
            return found
        await asyncio.sleep(_LOOK_SECONDS)


def _public_urls(state: StateFolder) -> PublicUrls | None:
    base = os.environ.get("ASSETS_PUBLIC_BASE_URL")
    if not base and state.exists() and "DATABASE_URL" not in os.environ:
        base = LocalObjectStorage(state.object_storage, state.ports().of("object_storage")).public_base_url
    return PublicUrls(base) if base else None
