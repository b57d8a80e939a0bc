"""PostgreSQL restarted, cut off or full, in front of real workers."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from database import migrate
from services.cli.local.postgres import LocalPostgres
from tests.chaos.scene import Scene, until
from tests.support import images
from tests.support.database import PASSWORDS, DatabaseUnderTest
from tests.support.faults import PostgresProxy
from tests.support.uploads import Upload, open_uploads


async def _ready_all(scene: Scene, uploads: list[Upload]) -> None:
    for upload in uploads:
        await scene.reaches(upload, "ready", hurried=True)


async def test_every_connection_cut_again_and_again_loses_nothing(scene: Scene) -> None:
    async with scene.worker() as worker:
        uploads = []
        for number in range(4):
            uploads.append(await scene.uploads.receive(scene.store, images.jpeg(200 + number, 150)))
            scene.postgres.cut_all()
            await asyncio.sleep(0.2)
        # A claim whose answer was cut off holds its job until the lease ends; nobody knows of it before.
        await asyncio.sleep(1)
        await scene.expire_leases()
        await _ready_all(scene, uploads)
        assert worker.process.returncode is None
    assert await scene.violations() == []


async def test_a_photo_is_taken_up_while_the_listening_connection_is_gone(scene: Scene) -> None:
    async with scene.worker(ASSETS_IDLE_POLL_MS="1000"):
        admin = await asyncpg.connect(scene.database.server.admin_dsn)

        async def was_cut() -> bool:
            cut = await admin.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = $1 AND application_name LIKE '%listener'",
                scene.database.name,
            )
            return len(cut) == 1

        await until(was_cut)
        await admin.close()
        upload = await scene.uploads.receive(scene.store, images.jpeg(200, 150))
        await scene.reaches(upload, "ready")
    assert await scene.violations() == []


async def test_a_record_cut_off_before_its_commit_is_made_again_under_the_same_lease(scene: Scene) -> None:
    barrier = scene.postgres.hold("COMMIT", after="record_processing_outcome")
    async with scene.worker():
        upload = await scene.uploads.receive(scene.store, images.jpeg(200, 150))
        await barrier.reached()
        scene.postgres.cut_all()
        await scene.reaches(upload, "processing")
        barrier.open()
        await scene.reaches(upload, "ready")
    assert await scene.violations() == []
    job = (await scene.jobs(upload))["process_upload"]
    assert (job["attempt_count"], job["processing_error_count"]) == (0, 0)


async def test_no_connection_to_be_had_stops_nothing_for_good(scene: Scene) -> None:
    admin = await asyncpg.connect(scene.database.server.admin_dsn)
    name = scene.database.name
    async with scene.worker() as worker:
        await admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0')
        scene.postgres.cut_all()
        await worker.logged("no job claimed")
        upload = await scene.uploads.receive(scene.store, images.jpeg(200, 150))
        await asyncio.sleep(1)
        assert await scene.status(upload) == "processing"
        assert worker.process.returncode is None
        await admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT -1')
        await scene.reaches(upload, "ready")
    await admin.close()
    assert await scene.violations() == []


@pytest_asyncio.fixture
async def own_server() -> AsyncIterator[LocalPostgres]:
    """A server that may be stopped."""
    with tempfile.TemporaryDirectory(prefix="ninaku-chaos-") as folder:
        Path(folder).chmod(0o711)
        server = LocalPostgres(Path(folder) / "postgres", durable=True, die_with_parent=True)
        await server.start()
        yield server
        await server.stop()
        server.remove()


@pytest.mark.parametrize("photos", [4, pytest.param(24, marks=pytest.mark.soak)])
async def test_postgresql_restarted_under_load_loses_nothing(
    scene: Scene, own_server: LocalPostgres, photos: int
) -> None:
    await migrate.create(own_server.admin_dsn, "restarted", PASSWORDS)
    database = DatabaseUnderTest(own_server, "restarted")
    uploads = await open_uploads(database)
    proxy = PostgresProxy("127.0.0.1", own_server.port)
    async with proxy.running():
        world = Scene(database, scene.storage, uploads.owner, uploads, scene.store, scene.s3, proxy, scene.cdn)
        async with world.worker(), world.worker():
            received = []
            for number in range(photos):
                received.append(await uploads.receive(scene.store, images.jpeg(200 + number, 150)))
                if number % 8 == 2:
                    await _restart(own_server)
                    await database.close()
                    uploads = world.uploads = await open_uploads_again(database, uploads)
                    world.owner = uploads.owner
            await _ready_all(world, received)

        async def nobody_works() -> bool:
            return await world.postgres_is_idle()

        await until(nobody_works)
        assert await world.violations() == []
    await database.close()


async def _restart(server: LocalPostgres) -> None:
    await server.stop()
    await asyncio.sleep(0.5)
    await server.start()


async def open_uploads_again(database: DatabaseUnderTest, before):  # type: ignore[no-untyped-def]
    """The same organization over new connections."""
    return type(before)(await database.owner(), await database.login("ninaku_admission"), before.person)
