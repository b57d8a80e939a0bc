"""The media worker: `python -m services.processing.worker`. Everything is constructed here."""

import os

# gRPC reads it when it is imported. Our only fork becomes another program at once, so there is nothing to prepare for,
# and nothing to write to the log about it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import asyncio
import ctypes
import signal
import socket
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from libs.assets.public_urls import PublicUrls
from libs.assets.uuid7 import uuid7
from libs.database.engine import create_database
from libs.observability.metrics import context_meter
from libs.rpc.process import Telemetry, run_process
from libs.rpc.server import RpcServer
from libs.settings.processes import MediaWorkerSettings
from libs.storage.clients import worker_layout
from libs.storage.object_store import ObjectStore, open_object_store
from services.processing.cdn import open_cdn
from services.processing.child import Decoder, DecoderLimits
from services.processing.domain import DecoderFailed, JobKind
from services.processing.erasure import Eraser
from services.processing.instruments import Instruments
from services.processing.late_writes import LateWrites
from services.processing.loop import JobHandler, JobLoop, Pace
from services.processing.process_upload import ProcessUpload
from services.processing.purge_asset import PurgeAsset
from services.processing.repository import ProcessingRepository
from services.processing.sweeps import Sweeps
from services.processing.wakeups import JobListener, Wakeups

_CONNECTIONS: Final = 3
"""One for the loop, one for the sweeps, one to spare; the listener has its own."""
_PR_SET_DUMPABLE: Final = 4
_DRAIN_SECONDS: Final = 1.0


async def serve(settings: MediaWorkerSettings, telemetry: Telemetry) -> None:
    """Work until SIGTERM or SIGINT. Without the storage group: stay up, report healthy, touch nothing (§11)."""
    _hide_memory_from_children()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    listener = settings.listener
    server = None
    if listener is not None:
        server = RpcServer(listener.host, listener.port, meter=telemetry.meter, tracer=telemetry.tracer)
    log: Any = structlog.stdlib.get_logger("ninaku.processing")
    if settings.storage is None:
        log.warning("idle: the worker storage group is not set")
        if server is not None:
            await server.start()
        await stopping.wait()
    else:
        layout = worker_layout(settings.storage, settings.public_store)
        async with (
            open_object_store(layout, missing_answers_403=settings.storage.missing_answers_403) as objects,
            open_cdn(settings.cloudflare, settings.cloudfront, settings.no_cdn) as cdn,
        ):
            if cdn is None:
                log.warning("purges are left to others: no CDN group is set, nor ASSETS_CDN=none")
            eraser = Eraser(objects, PublicUrls(settings.storage.public_base_url), cdn)
            await _work(settings, objects, eraser, server, stopping)
    if server is not None:
        await server.stop(drain_seconds=_DRAIN_SECONDS)


async def _work(
    settings: MediaWorkerSettings,
    objects: ObjectStore,
    eraser: Eraser,
    server: RpcServer | None,
    stopping: asyncio.Event,
) -> None:
    url = settings.database.url.get_secret_value()
    database = create_database(url, pool_size=_CONNECTIONS, application_name=settings.service_name)
    decoder = Decoder(DecoderLimits())
    try:
        instruments = Instruments(context_meter("processing"))
        repository = ProcessingRepository(database, lease_owner=f"{socket.gethostname()}:{os.getpid()}"[:120])
        wakeups = Wakeups()
        handlers: dict[str, JobHandler] = {
            JobKind.PROCESS_UPLOAD.value: ProcessUpload(objects, decoder, uuid7, _utc_now)
        }
        if eraser.cdn is not None:
            handlers[JobKind.PURGE_ASSET.value] = PurgeAsset(repository, eraser)
        loop = JobLoop(
            repository,
            handlers,
            objects,
            wakeups=wakeups,
            pace=Pace(lease=settings.image_loop.lease_seconds, poll=settings.image_loop.idle_poll_ms / 1000),
            instruments=instruments,
            lost_work=LateWrites(repository, eraser, instruments),
        )
        sweeps = Sweeps(repository, objects, instruments)
        listener = JobListener(url, settings.service_name, wakeups)
        try:
            await decoder.start()
        except DecoderFailed as error:
            # The next photo tries again; until then the reason is in the log and not in a crash loop.
            structlog.stdlib.get_logger("ninaku.processing").error("decoder not started", error=str(error))
        if server is not None:
            await server.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(loop.run(stopping), name="jobs")
            tasks.create_task(sweeps.run(stopping), name="sweeps")
            tasks.create_task(listener.run(stopping), name="listener")
    finally:
        await decoder.close()
        await database.close()


def _hide_memory_from_children() -> None:
    # The decoding child runs as the same user: it must not read our environment, nor attach to us.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _utc_now() -> datetime:
    return datetime.now(UTC)


if __name__ == "__main__":
    run_process(MediaWorkerSettings, serve)
