"""What the worker adds to the bare pipeline: throughput with two workers, completion to ready, waking.

Targets (DESIGN §7): at most 10 % of throughput lost with two workers on two cores; an idle worker has a completed 12 MP
JPEG ready within 1.25 times the bare pipeline, and wakes within 50 ms. Run as ``python -m tests.bench.worker``. The
bare pipeline is the same libvips code on the same photograph, without a queue, a child, a database or a store.
"""

import asyncio
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import uvloop

from database import migrate
from libs.assets.object_keys import staging_key
from libs.assets.tokens import generate_delivery_token
from libs.settings.loading import load
from libs.settings.processes import MediaWorkerSettings
from libs.storage.clients import worker_layout
from libs.storage.object_store import ObjectStore, open_object_store
from libs.tenancy.callers import hash_session_token
from services.cli.administration import administration_at
from services.cli.clients import rpc_ready
from services.cli.local.children import Supervisor
from services.cli.local.object_storage import LocalObjectStorage
from services.cli.local.postgres import LocalPostgres
from services.cli.local.services import (
    SERVICES,
    SIGNING_SERVICES,
    ObjectStorageAccess,
    StackAddresses,
    child_process,
)
from services.cli.local.state import StateFolder
from tests.bench.photographs import encoded, photograph

WORKERS: Final = 2
PHOTOS: Final = 16
ROUNDS: Final = 3
SINGLES: Final = 7
_ROOT: Final = Path(__file__).resolve().parents[2]

BARE: Final = """
import json, sys, time
from services.processing import images
images.contain()
data = open(sys.argv[1], "rb").read()
images.render(data, 1)
print("ready", flush=True)
for line in sys.stdin:
    seconds = []
    for _ in range(int(line)):
        started = time.perf_counter()
        images.render(data, 1)
        seconds.append(time.perf_counter() - started)
    print(json.dumps(seconds), flush=True)
"""


class Bare:
    """One process that renders the photograph again and again, as many times as it is told."""

    def __init__(self, photo: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", BARE, str(photo)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the bare pipeline failed")
        return line

    def start(self, count: int) -> None:
        """Asks for `count` photographs."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def result(self) -> list[float]:
        """Waits for them; seconds of each."""
        seconds: list[float] = json.loads(self._read())
        return seconds

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass(frozen=True)
class Tenant:
    """Who uploads: an admission login's connection, and the session it acts with."""

    connection: Any
    organization_id: uuid.UUID
    token_hash: bytes


@dataclass(frozen=True)
class Pending:
    """An upload whose bytes are stored and whose completion is still to come."""

    asset_id: uuid.UUID
    upload_id: uuid.UUID


async def _open(tenant: Tenant) -> None:
    outcome = await tenant.connection.fetchval(
        "SELECT outcome FROM identity.open_tenant_context"
        "($1, $2, 'assets.media.manage', 'assets.media', 'bench', NULL)",
        tenant.token_hash, tenant.organization_id,
    )  # fmt: skip
    if outcome != "authorized":
        raise SystemExit(f"the tenant context was not opened: {outcome}")


async def _reserve(tenant: Tenant, objects: ObjectStore, data: bytes) -> Pending:
    asset_id, upload_id, token = uuid.uuid4(), uuid.uuid4(), generate_delivery_token()
    async with tenant.connection.transaction():
        await _open(tenant)
        await tenant.connection.fetchrow(
            "SELECT * FROM assets.reserve_upload"
            "($1, $2, $3, $4, $5, 'image/jpeg', $6, 'public', 'bench', NULL, $7, $8, $9, ARRAY['public']::varchar[])",
            asset_id, uuid.uuid4(), upload_id, generate_delivery_token(), token, len(data), uuid.uuid4(),
            secrets.token_hex(32), datetime.now(UTC) + timedelta(minutes=15),
        )  # fmt: skip
    await objects.put("s3-private", staging_key(token), data, "image/jpeg", None)
    return Pending(asset_id, upload_id)


async def _complete(tenant: Tenant, uploads: list[Pending]) -> None:
    async with tenant.connection.transaction():
        await _open(tenant)
        for upload in uploads:
            outcome = await tenant.connection.fetchval(
                "SELECT outcome FROM assets.complete_upload($1, NULL)", upload.upload_id
            )
            if outcome != "completed":
                raise SystemExit(f"an upload was not completed: {outcome}")


async def _until_settled(owner: Any, uploads: list[Pending]) -> None:
    """Returns when every asset is ready. A failed one ends the measurement: there would be nothing to compare."""
    ids = [upload.asset_id for upload in uploads]
    while True:
        counts = dict(
            await owner.fetch("SELECT status, count(*) FROM assets.assets WHERE id = ANY ($1) GROUP BY status", ids)
        )
        if counts.get("failed"):
            raise SystemExit("a photograph failed")
        if counts.get("ready") == len(ids):
            return
        await asyncio.sleep(0.005)


async def _until_leased(owner: Any, upload: Pending) -> None:
    while not await owner.fetchval(
        "SELECT state <> 'pending' FROM assets.processing_jobs WHERE asset_id = $1", upload.asset_id
    ):
        await asyncio.sleep(0.001)


async def _singles(tenant: Tenant, owner: Any, objects: ObjectStore, data: bytes, bare: Bare) -> None:
    """One photograph at a time, turn by turn with the bare pipeline."""
    ready, waking, alone = [], [], []
    for number in range(SINGLES + 1):
        bare.start(1)
        seconds = await asyncio.to_thread(bare.result)
        upload = await _reserve(tenant, objects, data)
        await asyncio.sleep(0.3)  # the worker is idle and asleep
        await _complete(tenant, [upload])
        completed = time.perf_counter()
        await _until_leased(owner, upload)
        leased = time.perf_counter()
        await _until_settled(owner, [upload])
        if number:  # the first one of all warms both up
            alone += seconds
            waking.append(leased - completed)
            ready.append(time.perf_counter() - completed)
    ratio = statistics.median(ready) / statistics.median(alone)
    print(
        f"  completion to ready {statistics.median(ready):.2f} s, bare {statistics.median(alone):.2f} s:"
        f" {ratio:.2f} of the bare pipeline (target 1.25)"
    )
    print(
        f"  waking {1000 * statistics.median(waking):.0f} ms, slowest {1000 * max(waking):.0f} ms (target 50 ms)",
        flush=True,
    )


async def _throughput(tenant: Tenant, owner: Any, objects: ObjectStore, data: bytes, bares: list[Bare]) -> None:
    """The same number of photographs through two workers and through two bare processes, turn by turn."""
    ratios = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for bare in bares:
            bare.start(PHOTOS // WORKERS)
        for bare in bares:
            await asyncio.to_thread(bare.result)
        alone = PHOTOS / (time.perf_counter() - started)
        uploads = [await _reserve(tenant, objects, data) for _ in range(PHOTOS)]
        started = time.perf_counter()
        await _complete(tenant, uploads)
        await _until_settled(owner, uploads)
        through = PHOTOS / (time.perf_counter() - started)
        ratios.append(through / alone)
        print(f"  {through:.2f}/s through {WORKERS} workers, {alone:.2f}/s bare: {ratios[-1]:.2f}", flush=True)
    print(f"  throughput {statistics.median(ratios):.2f} of the bare pipeline (target 0.90 or more)", flush=True)


async def _tenant(stack: AsyncExitStack, dsn: Mapping[str, str]) -> Tenant:
    async with administration_at(dsn[migrate.MIGRATOR]) as operator:
        organization_id = await operator.create_organization("Bench", "pionero")
        await operator.add_member(organization_id, "owner@example.com", "Owner", "organization_owner", None)
        _, token = await operator.create_session("owner@example.com")
    connection = await asyncpg.connect(dsn["ninaku_admission"])
    stack.push_async_callback(connection.close)
    return Tenant(connection, organization_id, hash_session_token(token))


async def main() -> None:
    """Measure and print."""
    data = encoded(photograph(4000, 3000), "JPEG", quality=88)
    print(f"worker beside the bare pipeline: 4000x3000 JPEG, {len(data):,} bytes", flush=True)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ninaku-bench-")))
        folder.chmod(0o711)
        photo = folder / "photo.jpg"
        photo.write_bytes(data)
        state = StateFolder(folder / "state").prepare()
        secrets_of_stack = state.secrets(tuple(migrate.LOGINS), SIGNING_SERVICES)
        passwords = secrets_of_stack.database_passwords
        postgres = await stack.enter_async_context(LocalPostgres(folder / "postgres", die_with_parent=True))
        storage = await stack.enter_async_context(LocalObjectStorage(folder / "s3", die_with_parent=True))
        await migrate.create(postgres.admin_dsn, "ninaku", passwords)
        dsn = {login: postgres.dsn(login, password, "ninaku") for login, password in passwords.items()}
        row = next(service for service in SERVICES if service.name == "worker")
        access = ObjectStorageAccess(
            storage.endpoint_url, storage.private_bucket, storage.public_bucket, storage.api_key, storage.worker_key
        )
        addresses = StackAddresses(state.choose_ports(None), secrets_of_stack, dsn.__getitem__, access)
        child = child_process(row, addresses, "ERROR")
        settings = load(MediaWorkerSettings, child.environment)
        if settings.storage is None:
            raise SystemExit("the worker has no storage")
        objects = await stack.enter_async_context(
            open_object_store(worker_layout(settings.storage, settings.public_store))
        )
        tenant = await _tenant(stack, dsn)
        owner = await asyncpg.connect(dsn[migrate.MIGRATOR])
        stack.push_async_callback(owner.close)
        bares = [Bare(photo) for _ in range(WORKERS)]
        for bare in bares:
            stack.callback(bare.end)

        workers = Supervisor(lambda name, line: print(f"  {name}: {line}", flush=True))
        stack.push_async_callback(workers.stop)
        await workers.start([child])
        await _singles(tenant, owner, objects, data, bares[0])
        beside = addresses.ports.of("gateway")  # no gateway here: the second worker takes its port
        environment = {**child.environment, "NINAKU_LISTEN": f"127.0.0.1:{beside}"}
        second = replace(
            child, name="second worker", environment=environment, ready=lambda: rpc_ready(f"127.0.0.1:{beside}")
        )
        await workers.start([second])
        await _throughput(tenant, owner, objects, data, bares)


if __name__ == "__main__":
    uvloop.run(main())
