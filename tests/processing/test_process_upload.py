"""From a completed upload to its outcome, on the real database and the real S3 server."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import aiohttp
import pytest
import pytest_asyncio

from database import migrate
from libs.assets.uuid7 import uuid7
from libs.storage.errors import StorageUnavailable
from libs.storage.object_store import ObjectStore
from services.cli.local.object_storage import LocalObjectStorage
from services.processing.child import Decoder, DecoderLimits
from services.processing.domain import ClaimedJob, JobKind
from services.processing.instruments import Instruments
from services.processing.loop import JobLoop, Pace
from services.processing.process_upload import ProcessUpload
from services.processing.repository import ProcessingRepository
from services.processing.storage import Objects
from services.processing.sweeps import Sweeps
from services.processing.wakeups import Wakeups
from tests.support import images
from tests.support.database import DatabaseUnderTest
from tests.support.uploads import Upload, Uploads


@pytest_asyncio.fixture
async def decoder() -> AsyncIterator[Decoder]:
    child = Decoder(DecoderLimits())
    yield child
    await child.close()


class TakenBack:
    """Remembers the assets whose late writes were to be taken back."""

    def __init__(self) -> None:
        self.asset_ids: list[UUID | None] = []

    async def take_back(self, job: ClaimedJob) -> None:
        self.asset_ids.append(job.asset_id)


class Worker:
    """A loop with the real handler, run until it has recorded what there was to do."""

    def __init__(self, repository: ProcessingRepository, decoder: Decoder, instruments: Instruments) -> None:
        self._repository = repository
        self._decoder = decoder
        self._instruments = instruments
        self.taken_back = TakenBack()

    async def work(self, objects: Objects, uploads: Uploads, *expected: Upload, lease: int = 120) -> None:
        """Run until none of the uploads has a job that is due."""
        stopping = asyncio.Event()
        loop = JobLoop(
            self._repository,
            {JobKind.PROCESS_UPLOAD: ProcessUpload(objects, self._decoder, uuid7, lambda: datetime.now(UTC))},
            objects,
            wakeups=Wakeups(),
            pace=Pace(lease=lease, poll=0.5),
            instruments=self._instruments,
            lost_work=self.taken_back,
        )
        running = asyncio.create_task(loop.run(stopping))
        async with asyncio.timeout(60):
            while await uploads.owner.fetchval(
                "SELECT count(*) FROM assets.processing_jobs WHERE asset_id = ANY ($1)"
                " AND (state = 'leased' OR state = 'pending' AND available_at <= now())",
                [upload.asset_id for upload in expected],
            ):
                assert not running.done(), running
                await asyncio.sleep(0.02)
        stopping.set()
        await running


@pytest.fixture
def worker(repository: ProcessingRepository, decoder: Decoder, instruments: Instruments) -> Worker:
    return Worker(repository, decoder, instruments)


@pytest.mark.case("A3b-2.02")
async def test_processes_a_completed_upload_into_a_ready_asset_recorded_in_one_transaction(
    worker: Worker, uploads: Uploads, object_store: ObjectStore, object_storage: LocalObjectStorage
) -> None:
    data = images.jpeg(1600, 1200, exif=images.exif(orientation=6, gps=True))
    upload = await uploads.receive(object_store, data)
    assert await uploads.usage() == (1, len(data), 0)

    await worker.work(object_store, uploads, upload)

    asset = await uploads.asset(upload)
    assert (asset["status"], asset["failure_code"]) == ("ready", None)
    assert await uploads.state(upload) == "verified"
    rows = await uploads.owner.fetch(
        "SELECT v.*, v.xmin::text AS transaction, o.object_key, o.status AS object_status, o.is_primary,"
        " p.code AS provider,"
        " o.xmin::text AS object_transaction FROM assets.asset_variants v"
        " JOIN assets.storage_objects o ON o.variant_id = v.id JOIN assets.storage_providers p ON p.id = o.provider_id"
        " WHERE v.asset_id = $1",
        upload.asset_id,
    )
    token = upload.delivery_token
    assert {row["variant_code"]: (row["provider"], row["object_key"]) for row in rows} == {
        "original": ("s3-private", f"m/{token}/original.webp"),
        "p1-thumbnail": ("r2-public", f"a/{token}/p1/thumbnail.webp"),
        "p1-tile": ("r2-public", f"a/{token}/p1/tile.webp"),
        "p1-card": ("r2-public", f"a/{token}/p1/card.webp"),
        "p1-detail": ("r2-public", f"a/{token}/p1/detail.webp"),
    }
    sizes = {row["variant_code"]: (row["width"], row["height"]) for row in rows}
    assert sizes == {
        "original": (1200, 1600),
        "p1-thumbnail": (160, 160),
        "p1-tile": (320, 320),
        "p1-card": (480, 640),
        "p1-detail": (960, 1280),
    }
    for row in rows:
        stored = await object_store.read_at_most(row["provider"], row["object_key"], 10_000_000)
        assert stored is not None
        assert len(stored) == row["byte_size"]
        assert hashlib.sha256(stored).digest() == row["checksum_sha256"]
        assert images.opened(stored).size == (row["width"], row["height"])
        assert (row["status"], row["object_status"], row["is_primary"]) == ("ready", "available", True)
        assert row["media_type"] == "image/webp"
    job_transaction = await uploads.owner.fetchval(
        "SELECT xmin::text FROM assets.processing_jobs WHERE asset_id = $1 AND state = 'completed'", upload.asset_id
    )
    assert {row["transaction"] for row in rows} == {row["object_transaction"] for row in rows} == {job_transaction}
    assert next(row["id"] for row in rows if row["variant_code"] == "original") == upload.original_variant_id
    assert await uploads.usage() == (1, 0, sum(row["byte_size"] for row in rows))
    assert worker.taken_back.asset_ids == []

    async with aiohttp.ClientSession() as browser:
        for name in ("thumbnail", "tile", "card", "detail"):
            async with browser.get(f"{object_storage.public_base_url}/a/{token}/p1/{name}.webp") as answer:
                assert answer.status == 200
                assert answer.headers["Content-Type"] == "image/webp"
                assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        async with browser.get(f"{object_storage.public_base_url}/m/{token}/original.webp") as answer:
            assert answer.status in (403, 404)


@pytest.mark.case("A3b-2.03")
async def test_deletes_the_staging_object_after_a_ready_a_failed_and_an_expired_upload(
    worker: Worker,
    uploads: Uploads,
    object_store: ObjectStore,
    repository: ProcessingRepository,
    instruments: Instruments,
) -> None:
    ready = await uploads.receive(object_store, images.jpeg(200, 150))
    failed = await uploads.receive(object_store, images.jpeg(200, 150)[:-400])
    expired = await uploads.reserve(1000, expires_in_seconds=-60)
    await object_store.put("s3-private", expired.staging_key, b"x" * 1000, "image/jpeg", None)
    kept = await uploads.receive(object_store, images.jpeg(200, 150))
    await worker.work(_Outage(object_store, "put", f"m/{kept.delivery_token}"), uploads, ready, failed, kept)
    await Sweeps(repository, object_store, instruments).expire_uploads()

    assert [await uploads.state(upload) for upload in (ready, failed, expired, kept)] == [
        "verified",
        "rejected",
        "expired",
        "received",
    ]
    for upload in (ready, failed, expired):
        assert await object_store.head("s3-private", upload.staging_key) is None
    assert await object_store.head("s3-private", kept.staging_key) is not None


@pytest.mark.case("A3b-2.04")
@pytest.mark.parametrize(
    ("data", "declared_type", "declared_size", "code"),
    [
        (images.jpeg(300, 200), "image/png", None, "assets.content_mismatch"),
        (images.jpeg(300, 200)[:-500], "image/jpeg", None, "assets.image_corrupt"),
        (images.jpeg(60, 200), "image/jpeg", None, "assets.image_too_small"),
        (images.encode(images.quadrants(12_001, 64), "PNG"), "image/png", None, "assets.image_too_large"),
        (images.jpeg(300, 200), "image/jpeg", 1_000, "assets.size_mismatch"),
        (images.jpeg(300, 200), "image/jpeg", 1_000_000, "assets.size_mismatch"),
    ],
)
async def test_fails_the_asset_and_releases_its_reservation_on_a_permanent_failure_without_retrying(
    worker: Worker,
    uploads: Uploads,
    object_store: ObjectStore,
    data: bytes,
    declared_type: str,
    declared_size: int | None,
    code: str,
) -> None:
    upload = await uploads.receive(object_store, data, declared_type, declared_size=declared_size)
    await worker.work(object_store, uploads, upload)

    asset = await uploads.asset(upload)
    assert (asset["status"], asset["failure_code"]) == ("failed", code)
    assert await uploads.state(upload) == "rejected"
    job = await uploads.job(upload)
    assert (job["state"], job["attempt_count"], job["processing_error_count"]) == ("completed", 0, 0)
    assert worker.taken_back.asset_ids == []
    assert await uploads.usage() == (0, 0, 0)
    for name in ("thumbnail", "tile", "card", "detail"):
        assert await object_store.head("r2-public", f"a/{upload.delivery_token}/p1/{name}.webp") is None


async def test_keeps_the_renditions_of_a_private_asset_in_the_private_store(
    worker: Worker, uploads: Uploads, object_store: ObjectStore
) -> None:
    upload = await uploads.receive(object_store, images.jpeg(300, 200), access_class="private")
    await worker.work(object_store, uploads, upload)
    assert (await uploads.asset(upload))["status"] == "ready"
    for name in ("thumbnail", "tile", "card", "detail"):
        assert await object_store.head("s3-private", f"p/{upload.delivery_token}/p1/{name}.webp") is not None
        assert await object_store.head("r2-public", f"a/{upload.delivery_token}/p1/{name}.webp") is None


async def test_puts_public_renditions_below_a_of_the_private_bucket_under_plan_b(
    worker: Worker, uploads: Uploads, plan_b_store: ObjectStore, database: DatabaseUnderTest
) -> None:
    await migrate.migrate(database.dsn(), public_provider="s3-public")
    upload = await uploads.receive(plan_b_store, images.jpeg(300, 200))
    await worker.work(plan_b_store, uploads, upload)
    assert (await uploads.asset(upload))["status"] == "ready"
    assert await plan_b_store.head("s3-private", f"a/{upload.delivery_token}/p1/tile.webp") is not None


async def test_waits_for_an_upload_that_is_not_stored_yet_and_gives_up_once_its_policy_has_expired(
    worker: Worker, uploads: Uploads, object_store: ObjectStore
) -> None:
    upload = await uploads.reserve(5_000)
    await uploads.complete(upload)
    await worker.work(object_store, uploads, upload)
    job = await uploads.job(upload)
    assert (job["state"], job["error_class"], job["last_error_code"]) == ("pending", "storage", "assets.upload_missing")
    assert (job["attempt_count"], job["processing_error_count"]) == (1, 0)

    await uploads.owner.execute(
        "UPDATE assets.uploads SET created_at = created_at - interval '1 hour', expires_at = now() WHERE id = $1",
        upload.upload_id,
    )
    await uploads.owner.execute("UPDATE assets.processing_jobs SET available_at = now(), queue_rank = NULL")
    await worker.work(object_store, uploads, upload)
    assert (await uploads.asset(upload))["failure_code"] == "assets.upload_missing"
    # The attempt before it may have stored something and died; a first attempt has nothing to take back.
    assert worker.taken_back.asset_ids == [upload.asset_id]


async def test_changes_nothing_verified_when_the_form_is_posted_again_after_completion(
    worker: Worker, uploads: Uploads, object_store: ObjectStore
) -> None:
    data = images.jpeg(300, 200)
    upload = await uploads.receive(object_store, data)
    await worker.work(object_store, uploads, upload)
    key = f"m/{upload.delivery_token}/original.webp"
    before = await object_store.read_at_most("s3-private", key, 10_000_000)

    await object_store.put("s3-private", upload.staging_key, images.jpeg(300, 200, quality=10), "image/jpeg", None)
    await worker.work(object_store, uploads, upload)

    assert (await uploads.asset(upload))["status"] == "ready"
    assert await object_store.read_at_most("s3-private", key, 10_000_000) == before


async def test_retries_a_storage_outage_without_counting_it_and_finishes_when_it_is_over(
    worker: Worker, uploads: Uploads, object_store: ObjectStore
) -> None:
    upload = await uploads.receive(object_store, images.jpeg(300, 200))
    for attempt in range(1, 4):
        await worker.work(_Outage(object_store, "put", f"a/{upload.delivery_token}"), uploads, upload)
        job = await uploads.job(upload)
        assert (job["state"], job["attempt_count"], job["processing_error_count"]) == ("pending", attempt, 0)
        assert job["last_error_code"] == "assets.storage_unavailable"
        assert (await uploads.asset(upload))["status"] == "processing"
        await uploads.owner.execute("UPDATE assets.processing_jobs SET available_at = now(), queue_rank = NULL")
    await worker.work(object_store, uploads, upload)
    assert (await uploads.asset(upload))["status"] == "ready"


async def test_counts_a_child_that_dies_as_a_processing_error_at_once(
    uploads: Uploads, object_store: ObjectStore, repository: ProcessingRepository, instruments: Instruments
) -> None:
    upload = await uploads.receive(object_store, images.jpeg(300, 200))
    decoder = Decoder(DecoderLimits(), command=("-c", "import sys; sys.stdout.buffer.write(b'\\1\\0\\0\\0\\2{}')"))
    await Worker(repository, decoder, instruments).work(object_store, uploads, upload)
    job = await uploads.job(upload)
    assert (job["state"], job["error_class"], job["processing_error_count"]) == ("pending", "processing", 1)
    assert job["last_error_code"] == "assets.processing_error"
    assert await object_store.head("s3-private", upload.staging_key) is not None
    await decoder.close()


class _Outage:
    """The store, with one operation out of order for keys of a prefix."""

    def __init__(self, store: ObjectStore, operation: str, prefix: str) -> None:
        self._store = store
        self._operation = operation
        self._prefix = prefix

    @property
    def public_provider(self) -> str:
        return self._store.public_provider

    def _fail(self, operation: str, provider: str, key: str) -> None:
        if operation == self._operation and key.startswith(self._prefix):
            raise StorageUnavailable(operation, provider, "SlowDown")

    async def head(self, provider: str, key: str) -> int | None:
        self._fail("head", provider, key)
        return await self._store.head(provider, key)

    async def read_at_most(self, provider: str, key: str, max_bytes: int) -> bytes | None:
        self._fail("read", provider, key)
        return await self._store.read_at_most(provider, key, max_bytes)

    async def put(self, provider: str, key: str, data: bytes, content_type: str, cache_control: str | None) -> None:
        self._fail("put", provider, key)
        await self._store.put(provider, key, data, content_type, cache_control)

    async def remove(self, provider: str, key: str) -> None:
        self._fail("remove", provider, key)
        await self._store.remove(provider, key)
