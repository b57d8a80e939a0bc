"""One test's whole world: a database and buckets of its own, a CDN, and worker processes that reach all of it through
proxies, so that a test can hold, spoil or cut whatever passes, and then send real signals."""

import asyncio
import hashlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from libs.assets.object_keys import master_key, public_rendition_key
from libs.assets.rendition_profile import PROFILE_1, RENDITIONS, rendition_name
from libs.assets.uuid7 import uuid7
from libs.database.engine import create_database
from libs.settings.groups import PublicStoreOperator, StorageOperator
from libs.storage.clients import operator_layout
from libs.storage.object_store import ObjectStore, open_object_store
from services.cli.local.object_storage import REGION, LocalObjectStorage
from services.processing.domain import ClaimedJob, JobKind, Outcome, OutcomeKind, StoredVariant
from services.processing.repository import ProcessingRepository
from tests.chaos.invariants import PLACES, Violation, violations
from tests.support.cdn import CloudflareServer
from tests.support.database import Connection, DatabaseUnderTest
from tests.support.faults import HttpProxy, PostgresProxy
from tests.support.object_storage import worker_storage_variables
from tests.support.uploads import Upload, Uploads

_PROJECT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 60.0
_PROFILE = tuple(rendition.code for rendition in RENDITIONS[PROFILE_1])


class WorkerProcess:
    """A running worker and the lines it has logged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def child(self) -> int:
        """The process id of its decoding child."""
        (child,) = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(child)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the worker."""
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        await self.process.wait()

    async def logged(self, event: str) -> dict[str, Any]:
        """The first line with that event, once it is there."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                for line in self.lines:
                    if line.get("event") == event:
                        return line
                assert self.process.returncode is None, self.lines
                await asyncio.sleep(0.02)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"event": line.decode(errors="replace").rstrip()})


@dataclass
class Scene:
    """Everything that a chaos test touches. `store` and `owner` go straight to the servers, past the proxies."""

    database: DatabaseUnderTest
    storage: LocalObjectStorage
    owner: Connection
    uploads: Uploads
    store: ObjectStore
    s3: HttpProxy
    postgres: PostgresProxy
    cdn: CloudflareServer

    @property
    def variables(self) -> dict[str, str]:
        """A worker's environment: everything through the proxies."""
        return {
            **worker_storage_variables(self.storage),
            "ASSETS_S3_ENDPOINT_URL": self.s3.url,
            "ASSETS_R2_ENDPOINT_URL": self.s3.url,
            **self.cdn.variables,
            "DATABASE_URL": self.postgres.dsn(self.database.dsn("ninaku_processing_worker")),
            "NINAKU_LISTEN": "127.0.0.1:0",
            "ASSETS_IDLE_POLL_MS": "500",
        }

    @asynccontextmanager
    async def worker(self, **more: str) -> AsyncIterator[WorkerProcess]:
        """A worker that is up; killed at the end if it still runs."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.processing.worker",
            cwd=_PROJECT,
            env={**self.variables, **more},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        worker = WorkerProcess(process)
        try:
            await worker.logged("listening")
            yield worker
        except BaseException:
            for line in worker.lines:
                print(line)  # pytest shows it with the failure
            raise
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def violations(self, *, settled: bool = True) -> list[Violation]:
        """What the audit of invariants finds."""
        return await violations(self.owner, self.store, settled=settled)

    async def expire_leases(self) -> None:
        """Shift the leases of all jobs into the past, instead of waiting for them."""
        await self.owner.execute(
            "UPDATE assets.processing_jobs SET lease_expires_at = now() - interval '1 second' WHERE state = 'leased'"
        )

    async def hurry(self) -> None:
        """Shift every delayed job to now, instead of waiting for its delay."""
        await self.owner.execute(
            "UPDATE assets.processing_jobs SET available_at = now() WHERE state = 'pending' AND available_at > now()"
        )

    async def erase(self, upload: Upload) -> None:
        """Ask for the erasure of an asset, as an operator does."""
        assert await self.owner.fetchval("SELECT outcome FROM assets.erase_asset($1)", upload.asset_id) == "queued"

    async def ready(self, number: int) -> list[Upload]:
        """Ready assets without a worker: their objects are stored and recorded as a worker does, unrendered."""
        database = create_database(self.database.dsn("ninaku_processing_worker"), pool_size=1, application_name="scene")
        repository = ProcessingRepository(database, "scene")
        uploads = []
        try:
            for _ in range(number):
                uploads.append(await self.uploads.receive(self.store, b"a photo"))
                job = await repository.claim([JobKind.PROCESS_UPLOAD], 120)
                assert job is not None
                stored = [await self._stored_variant(job, code) for code in ("original", *_PROFILE)]
                await repository.record(job, Outcome(OutcomeKind.READY, variants=tuple(stored)))
                await self.store.remove("s3-private", uploads[-1].staging_key)
        finally:
            await database.close()
        return uploads

    async def _stored_variant(self, job: ClaimedJob, code: str) -> StoredVariant:
        assert job.delivery_token is not None
        assert job.original_variant_id is not None
        is_master = code == "original"
        key = (
            master_key(job.delivery_token)
            if is_master
            else public_rendition_key(job.delivery_token, 1, rendition_name(code))
        )
        provider = "s3-private" if is_master else "r2-public"
        data = f"{code} of {job.delivery_token}".encode()
        await self.store.put(provider, key, data, "image/webp", None)
        variant_id = job.original_variant_id if is_master else uuid7()
        checksum = hashlib.sha256(data).digest()
        return StoredVariant(code, variant_id, uuid7(), provider, key, "image/webp", len(data), checksum, 64, 64)

    async def status(self, upload: Upload) -> str | None:
        """The status of the upload's asset; None when it is gone."""
        status: str | None = await self.owner.fetchval(
            "SELECT status FROM assets.assets WHERE id = $1", upload.asset_id
        )
        return status

    async def reaches(self, upload: Upload, status: str | None, hurried: bool = False) -> None:
        """Wait for a status; `hurried` takes away every delay meanwhile."""

        async def is_there() -> bool:
            if hurried:
                await self.hurry()
            return await self.status(upload) == status

        await until(is_there)

    async def jobs(self, upload: Upload) -> dict[str, Any]:
        """The asset's jobs by kind."""
        rows = await self.owner.fetch("SELECT * FROM assets.processing_jobs WHERE asset_id = $1", upload.asset_id)
        return {row["job_kind"]: row for row in rows}

    async def is_leased(self, upload: Upload, kind: str = "process_upload") -> None:
        """Wait until a job of the asset is under a lease."""

        async def leased() -> bool:
            jobs = await self.jobs(upload)
            return kind in jobs and jobs[kind]["state"] == "leased"

        await until(leased)

    async def sweep_is_due(self, code: str) -> None:
        """Make a sweep due now."""
        await self.owner.execute("UPDATE assets.sweeps SET next_due_at = now() WHERE sweep_code = $1", code)

    async def postgres_is_idle(self) -> bool:
        """Whether no connection of a worker is left in the database."""
        count: int = await self.owner.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'ninaku_processing_worker'"
            " AND datname = current_database()"
        )
        return count == 0

    async def stored(self, upload: Upload) -> list[str]:
        """The keys below m/, p/ and a/ of the asset's token that hold an object."""
        return [
            listed.key
            for provider, prefix in PLACES
            async for page in self.store.pages(provider, f"{prefix}{upload.delivery_token}/")
            for listed in page
        ]

    async def audit_records(self, asset_id: UUID) -> list[str]:
        """The actions recorded about an asset, in their order."""
        rows = await self.owner.fetch(
            "SELECT action_code FROM audit.records WHERE resource_id = $1 ORDER BY id", asset_id
        )
        return [row["action_code"] for row in rows]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.03)


@asynccontextmanager
async def operator_store(storage: LocalObjectStorage) -> AsyncIterator[ObjectStore]:
    """Every place, as the operator reaches it: with the right to list."""
    variables = operator_variables(storage)
    layout = operator_layout(StorageOperator.read(variables), PublicStoreOperator.read(variables))
    async with open_object_store(layout) as store:
        yield store


def operator_variables(storage: LocalObjectStorage) -> dict[str, str]:
    """What an operator's environment holds to reach the local server."""
    key_id, secret = storage.operator_key
    return {
        "ASSETS_S3_REGION": REGION,
        "ASSETS_S3_BUCKET": storage.private_bucket,
        "ASSETS_S3_OPERATOR_ACCESS_KEY_ID": key_id,
        "ASSETS_S3_OPERATOR_SECRET_ACCESS_KEY": secret,
        "ASSETS_S3_ENDPOINT_URL": storage.endpoint_url,
        "ASSETS_R2_ACCOUNT_ID": "local",
        "ASSETS_R2_PUBLIC_BUCKET": storage.public_bucket,
        "ASSETS_R2_OPERATOR_ACCESS_KEY_ID": key_id,
        "ASSETS_R2_OPERATOR_SECRET_ACCESS_KEY": secret,
        "ASSETS_R2_ENDPOINT_URL": storage.endpoint_url,
        "ASSETS_PUBLIC_BASE_URL": storage.public_base_url,
    }


async def empty(store: ObjectStore) -> None:
    """Remove everything from every place, uploads included."""
    for provider, prefix in (*PLACES, (PLACES[0][0], "in/")):
        async for page in store.pages(provider, prefix):
            for listed in page:
                await store.remove(provider, listed.key)
