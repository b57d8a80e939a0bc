"""`ninaku storage`: what the services expect of their buckets, checked and made so."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from libs.assets.public_urls import PublicUrls
from libs.settings.loading import load, process_variables
from libs.settings.processes import (
    ProcessSettings,
    StorageApplySettings,
    StorageCheckSettings,
    StorageReconcileSettings,
)
from libs.storage.clients import operator_layout
from libs.storage.object_store import open_object_store
from services.cli.failures import Failure
from services.cli.local.object_storage import REGION, LocalObjectStorage
from services.cli.local.services import browser_origins
from services.cli.local.state import StateFolder
from services.cli.operators import connect, database_access, state_folder
from services.cli.storage_apply import apply as apply_storage
from services.cli.storage_contract import run_contract
from services.cli.storage_reconcile import SAFETY_AGE, Reconciliation
from services.processing.cdn import open_cdn

app = typer.Typer(
    no_args_is_help=True, help="Object storage: check the contract, apply the bucket settings, reconcile with the rows."
)

State = Annotated[Path | None, typer.Option("--state", help="Folder of the local stack.")]


@app.command()
def check(state: State = None) -> None:
    """Try what the services rely on: forms, rights, reads, headers. One line per expectation.

    Against the buckets of ASSETS_S3_* and ASSETS_R2_*, or without those against the local stack's.
    """

    async def run(environment: Mapping[str, str]) -> bool:
        return await run_contract(load(StorageCheckSettings, _own(StorageCheckSettings, environment)), typer.echo)

    _finish(asyncio.run(_with_environment(state_folder(state), run)))


@app.command()
def apply(
    only_check: Annotated[bool, typer.Option("--check", help="Compare only; change nothing.")] = False,
    state: State = None,
) -> None:
    """Make buckets, CORS, lifecycle and public access what deploy/storage says.

    On the buckets of ASSETS_S3_* and ASSETS_R2_*, or without those on the local stack's.
    """

    async def run(environment: Mapping[str, str]) -> bool:
        settings = load(StorageApplySettings, _own(StorageApplySettings, environment))
        return await apply_storage(settings, only_check, typer.echo)

    _finish(asyncio.run(_with_environment(state_folder(state), run)))


@app.command()
def reconcile(
    repair: Annotated[bool, typer.Option("--repair", help="Mend what disagrees; without it nothing changes.")] = False,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="HOURS", help="Only older strays are removed.", min=1.0)
    ] = SAFETY_AGE.total_seconds() / 3600,
    state: State = None,
) -> None:
    """Compare the rows of the database with the objects in the buckets, both ways.

    An object without a row is a stray, and one of a purged asset must not exist: both are removed on --repair. A row
    without an object is marked missing, one that was marked and is there again is marked available. Work under way is
    never touched. Run it after restoring a backup of either side.
    """
    folder = state_folder(state)
    if not _names_buckets() and not folder.is_running():
        raise Failure("Set ASSETS_S3_* and DATABASE_URL, or start the local stack: make up")

    async def run(environment: Mapping[str, str]) -> bool:
        settings = load(StorageReconcileSettings, _own(StorageReconcileSettings, environment))
        layout = operator_layout(settings.operator, settings.public_operator)
        async with (
            database_access(folder) as access,
            _connection(access.operator_dsn) as connection,
            open_object_store(layout) as store,
            open_cdn(settings.cloudflare, settings.cloudfront, settings.no_cdn) as cdn,
        ):
            reconciliation = Reconciliation(
                connection,
                store,
                tuple(layout.accounts),
                urls=PublicUrls(settings.public_delivery.public_base_url),
                cdn=cdn,
                out=typer.echo,
                safety_age=timedelta(hours=older_than),
            )
            return (await reconciliation.run(repair)).is_right

    _finish(asyncio.run(_with_environment(folder, run)))


@asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[Any]:
    connection = await connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def _names_buckets() -> bool:
    return any(name.startswith(("ASSETS_S3_", "ASSETS_R2_")) for name in os.environ)


def _own(settings_type: type[ProcessSettings], environment: Mapping[str, str]) -> Mapping[str, str]:
    # One environment serves both commands: each is given what is its own.
    return {name: value for name, value in environment.items() if name in process_variables(settings_type)}


def _finish(right: bool) -> None:
    if not right:
        raise typer.Exit(1)


async def _with_environment(state: StateFolder, run: Callable[[Mapping[str, str]], Awaitable[bool]]) -> bool:
    if _names_buckets():
        return await run(os.environ)
    async with _local_server(state) as storage:
        return await run(storage)


@asynccontextmanager
async def _local_server(state: StateFolder) -> AsyncIterator[Mapping[str, str]]:
    if not state.exists():
        raise Failure("Set ASSETS_S3_REGION, ASSETS_S3_BUCKET and the rest, or start the local stack: make up")
    ports = state.ports()
    origins = browser_origins(ports)
    server = LocalObjectStorage(
        state.object_storage, ports.of("object_storage"), die_with_parent=True, browser_origins=origins
    )
    if state.is_running():
        server.read_keys()
        yield _environment(server, origins)
        return
    state.lock()
    try:
        async with server:
            yield _environment(server, origins)
    finally:
        state.unlock()


def _environment(server: LocalObjectStorage, origins: Sequence[str]) -> Mapping[str, str]:
    identities = {"API": server.api_key, "WORKER": server.worker_key, "OPERATOR": server.operator_key}
    keys = {
        f"ASSETS_S3_{name}_{part}": value
        for name, pair in identities.items()
        for part, value in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"), pair, strict=True)
    }
    return {
        **keys,
        "ASSETS_PUBLIC_BASE_URL": server.public_base_url,
        "ASSETS_S3_REGION": REGION,
        "ASSETS_S3_BUCKET": server.private_bucket,
        "ASSETS_S3_ENDPOINT_URL": server.endpoint_url,
        "ASSETS_R2_ACCOUNT_ID": "local",
        "ASSETS_R2_PUBLIC_BUCKET": server.public_bucket,
        "ASSETS_R2_ACCESS_KEY_ID": server.worker_key[0],
        "ASSETS_R2_SECRET_ACCESS_KEY": server.worker_key[1],
        "ASSETS_R2_OPERATOR_ACCESS_KEY_ID": server.operator_key[0],
        "ASSETS_R2_OPERATOR_SECRET_ACCESS_KEY": server.operator_key[1],
        "ASSETS_R2_ENDPOINT_URL": server.endpoint_url,
        "ASSETS_CDN": "none",
        "NINAKU_CORS_ORIGINS": ",".join(origins),
    }
