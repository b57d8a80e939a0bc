"""The worker as a process: what it loads, what it is told, how it starts, works and ends."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from libs.settings.loading import process_variables
from libs.settings.processes import MediaWorkerSettings
from libs.storage.object_store import ObjectStore
from services.cli.local.object_storage import LocalObjectStorage
from tests.support import images
from tests.support.database import DatabaseUnderTest
from tests.support.object_storage import worker_storage_variables
from tests.support.uploads import Upload, Uploads

ROOT = Path(__file__).parents[2]


class RunningWorker:
    """A worker process and the lines it has logged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"event": "not structured", "line": line.decode()})

    async def logged(self, event: str) -> dict[str, Any]:
        """The first line with that event, once it is there."""
        async with asyncio.timeout(30):
            while True:
                for line in self.lines:
                    if line.get("event") == event:
                        return line
                assert self.process.returncode is None, self.lines
                await asyncio.sleep(0.02)

    def children(self) -> list[int]:
        """The process ids of its children."""
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            return await self.process.wait()


@asynccontextmanager
async def _worker(environment: Mapping[str, str]) -> AsyncIterator[RunningWorker]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.processing.worker",
        cwd=ROOT,
        env={**environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield RunningWorker(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
def environment(database: DatabaseUnderTest, object_storage: LocalObjectStorage) -> dict[str, str]:
    return {
        "DATABASE_URL": database.dsn("ninaku_processing_worker"),
        "NINAKU_LISTEN": "127.0.0.1:0",
        "NINAKU_LOG_FORMAT": "json",
        "ASSETS_IDLE_POLL_MS": "60000",
        **worker_storage_variables(object_storage),
    }


async def _reaches(uploads: Uploads, upload: Upload, status: str) -> None:
    async with asyncio.timeout(30):
        while (await uploads.asset(upload))["status"] != status:
            await asyncio.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.case("A3a.05")
async def test_boots_without_the_messaging_and_identity_modules() -> None:
    code = (
        "import sys, services.processing.worker\n"
        "other = ('services.admission', 'services.library', 'services.delivery', 'services.gateway', 'services.cli',\n"
        "    'starlette', 'uvicorn', 'jwt', 'pyvips', 'typer', 'database')\n"
        "print([name for name in sys.modules if name.startswith(other) or name.endswith('servicer')])\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    assert output.decode().strip() == "[]"


@pytest.mark.case("A3a.06")
async def test_boots_with_the_worker_settings_which_expose_no_key_of_another_process(
    environment: dict[str, str],
) -> None:
    variables = process_variables(MediaWorkerSettings)
    assert not [name for name in variables if "SERVICE_TOKEN" in name or "_S3_API_" in name or "OPERATOR" in name]
    async with _worker(environment) as worker:
        assert (await worker.logged("listening"))["service"] == "ninaku-media-worker"
        assert await worker.stop() == 0
    for misplaced in ("NINAKU_SERVICE_TOKEN_PRIVATE_KEY", "ASSETS_S3_API_SECRET_ACCESS_KEY"):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.processing.worker",
            cwd=ROOT,
            env={**environment, misplaced: "a misplaced secret"},
            stderr=asyncio.subprocess.PIPE,
        )
        _, problems = await process.communicate()
        assert process.returncode == 1
        assert misplaced in problems.decode()
        assert "a misplaced secret" not in problems.decode()


async def test_takes_a_photo_to_ready_says_it_is_healthy_and_leaves_nothing_behind(
    environment: dict[str, str], uploads: Uploads, object_store: ObjectStore
) -> None:
    async with _worker(environment) as worker:
        address = (await worker.logged("listening"))["address"]
        async with grpc.aio.insecure_channel(address) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        upload = await uploads.receive(object_store, images.jpeg(800, 600))
        await _reaches(uploads, upload, "ready")
        (child,) = worker.children()
        assert await worker.stop() == 0
        assert not _alive(child)
    assert not [line for line in worker.lines if line["event"] == "not structured"]
    log = json.dumps(worker.lines)
    for secret in (environment["ASSETS_S3_WORKER_SECRET_ACCESS_KEY"], "password-of"):
        assert secret not in log


async def test_stays_up_idle_and_says_so_once_without_the_storage_group(
    environment: dict[str, str], uploads: Uploads
) -> None:
    upload = await uploads.reserve(1_000)
    await uploads.complete(upload)
    bare = {name: value for name, value in environment.items() if not name.startswith("ASSETS_")}
    async with _worker(bare) as worker:
        await worker.logged("listening")
        assert not worker.children()
        assert (await uploads.job(upload))["state"] == "pending"
        assert await worker.stop() == 0
    assert len([line for line in worker.lines if line["event"].startswith("idle")]) == 1


async def test_expires_abandoned_uploads_without_being_asked(
    environment: dict[str, str], uploads: Uploads, object_store: ObjectStore
) -> None:
    upload = await uploads.reserve(1_000, expires_in_seconds=-60)
    async with _worker(environment):
        await _reaches(uploads, upload, "failed")
    assert (await uploads.asset(upload))["failure_code"] == "assets.upload_expired"


async def test_leaves_a_job_to_the_next_worker_when_it_is_killed_in_the_middle(
    environment: dict[str, str], uploads: Uploads, object_store: ObjectStore
) -> None:
    async with _worker(environment) as worker:
        await worker.logged("listening")
        (child,) = worker.children()
        os.kill(child, signal.SIGSTOP)
        upload = await uploads.receive(object_store, images.jpeg(800, 600))
        async with asyncio.timeout(30):
            while (await uploads.job(upload))["state"] != "leased":
                await asyncio.sleep(0.02)
        worker.process.kill()
        await worker.process.wait()
        async with asyncio.timeout(10):
            while _alive(child):
                await asyncio.sleep(0.01)
    await uploads.owner.execute("UPDATE assets.processing_jobs SET lease_expires_at = now()")
    async with _worker(environment):
        await _reaches(uploads, upload, "ready")
    job = await uploads.job(upload)
    assert (job["state"], job["attempt_count"], job["processing_error_count"]) == ("completed", 1, 1)


async def test_gives_its_job_back_untried_on_sigterm(
    environment: dict[str, str], uploads: Uploads, object_store: ObjectStore
) -> None:
    async with _worker(environment) as worker:
        await worker.logged("listening")
        (child,) = worker.children()
        os.kill(child, signal.SIGSTOP)
        upload = await uploads.receive(object_store, images.jpeg(800, 600))
        async with asyncio.timeout(30):
            while (await uploads.job(upload))["state"] != "leased":
                await asyncio.sleep(0.02)
        assert await worker.stop() == 0
        assert not _alive(child)
    job = await uploads.job(upload)
    assert (job["state"], job["attempt_count"], job["processing_error_count"]) == ("pending", 0, 0)
    assert await object_store.head("s3-private", upload.staging_key) is not None


async def test_survives_a_database_that_restarts_its_connections(
    environment: dict[str, str], uploads: Uploads, object_store: ObjectStore, database: DatabaseUnderTest
) -> None:
    admin = await asyncpg.connect(database.server.admin_dsn)
    async with _worker({**environment, "ASSETS_IDLE_POLL_MS": "500"}) as worker:
        await worker.logged("listening")
        for _ in range(3):
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE usename = 'ninaku_processing_worker' AND datname = $1",
                database.name,
            )
            upload = await uploads.receive(object_store, images.jpeg(200, 150))
            await _reaches(uploads, upload, "ready")
        assert await worker.stop() == 0
    await admin.close()
