"""From an asset whose time has come to nothing: on the real database, the real S3 server and a CDN's own API."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from libs.assets.object_keys import private_keys, public_keys
from libs.assets.public_urls import PublicUrls
from libs.assets.uuid7 import uuid7
from libs.settings.groups import CloudflarePurge
from libs.storage.errors import StorageRefused, StorageUnavailable
from libs.storage.object_store import ObjectStore
from services.processing.cdn import Cdn, CdnRefused, CdnUnavailable, open_cdn
from services.processing.child import Decoder, DecoderLimits
from services.processing.domain import (
    ClaimedJob,
    JobKind,
    LeaseStanding,
    Outcome,
    OutcomeKind,
    Settled,
    StorageDeadlinePassed,
)
from services.processing.erasure import Eraser
from services.processing.instruments import Instruments
from services.processing.late_writes import LateWrites
from services.processing.loop import JobHandler, JobLoop, Pace
from services.processing.process_upload import ProcessUpload
from services.processing.purge_asset import PurgeAsset
from services.processing.repository import ProcessingRepository
from services.processing.wakeups import Wakeups
from tests.support import images
from tests.support.cdn import CloudflareServer, cloudflare_server
from tests.support.database import DatabaseUnderTest
from tests.support.uploads import Upload, Uploads

URLS = PublicUrls("https://media.example.com")
EVERY_KIND = tuple(kind.value for kind in (JobKind.PROCESS_UPLOAD, JobKind.PURGE_ASSET))


@dataclass
class Diary:
    """What happened outside the database, in its order."""

    events: list[str] = field(default_factory=list)


class WatchedStore:
    """The real store, which writes down every removal and fails where a test says so."""

    def __init__(self, store: ObjectStore, diary: Diary) -> None:
        self.store = store
        self.diary = diary
        self.failing: Callable[[str], Exception | None] = lambda key: None

    @property
    def public_provider(self) -> str:
        return self.store.public_provider

    async def head(self, provider: str, key: str) -> int | None:
        return await self.store.head(provider, key)

    async def read_at_most(self, provider: str, key: str, max_bytes: int) -> bytes | None:
        return await self.store.read_at_most(provider, key, max_bytes)

    async def put(self, provider: str, key: str, data: bytes, content_type: str, cache_control: str | None) -> None:
        await self.store.put(provider, key, data, content_type, cache_control)

    async def remove(self, provider: str, key: str) -> None:
        if (error := self.failing(key)) is not None:
            raise error
        await self.store.remove(provider, key)
        self.diary.events.append(f"removed {key}")


class WatchedCdn:
    """A CDN that writes down every purge, and fails where a test says so."""

    def __init__(self, cdn: Cdn, diary: Diary) -> None:
        self.cdn = cdn
        self.diary = diary
        self.troubles: list[Exception] = []

    async def purge(self, urls: Sequence[str]) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        await self.cdn.purge(urls)
        self.diary.events.append("purged the cdn")


class WatchedRepository:
    """The real repository, which writes down when a purge is finished."""

    def __init__(self, repository: ProcessingRepository, diary: Diary) -> None:
        self.repository = repository
        self.diary = diary

    async def begin_purge(self, job: ClaimedJob):  # type: ignore[no-untyped-def]
        self.diary.events.append("began")
        return await self.repository.begin_purge(job)

    async def finish_purge(self, job: ClaimedJob) -> str:
        self.diary.events.append("finished")
        return await self.repository.finish_purge(job)


class Workshop:
    """A worker's parts, put together as worker.py does, with a diary between them."""

    def __init__(
        self,
        database: DatabaseUnderTest,
        repository: ProcessingRepository,
        store: ObjectStore,
        decoder: Decoder,
        cdn: Cdn,
    ) -> None:
        self.database = database
        self.repository = repository
        self.diary = Diary()
        self.store = WatchedStore(store, self.diary)
        self.cdn = WatchedCdn(cdn, self.diary)
        self.eraser = Eraser(self.store, URLS, self.cdn)
        self.reader = InMemoryMetricReader()
        self.instruments = Instruments(MeterProvider([self.reader]).get_meter("test"))
        self.handlers: dict[str, JobHandler] = {
            JobKind.PROCESS_UPLOAD.value: ProcessUpload(self.store, decoder, uuid7, lambda: datetime.now(UTC)),
            JobKind.PURGE_ASSET.value: PurgeAsset(WatchedRepository(repository, self.diary), self.eraser),
        }

    async def work(self, upload: Upload) -> None:
        """Run a loop until no job of the upload's asset is due."""
        watcher = await self.database.owner()
        stopping = asyncio.Event()
        loop = JobLoop(
            self.repository,
            self.handlers,
            self.store,
            wakeups=Wakeups(),
            pace=Pace(lease=120, poll=0.5),
            instruments=self.instruments,
            lost_work=LateWrites(self.repository, self.eraser, self.instruments),
        )
        running = asyncio.create_task(loop.run(stopping))
        async with asyncio.timeout(60):
            while await watcher.fetchval(
                "SELECT count(*) FROM assets.processing_jobs WHERE asset_id = $1"
                " AND (state = 'leased' OR state = 'pending' AND available_at <= now())",
                upload.asset_id,
            ):
                assert not running.done(), running
                await asyncio.sleep(0.02)
        stopping.set()
        await running

    async def ready(self, uploads: Uploads, access_class: str = "public") -> Upload:
        """A processed photo."""
        upload = await uploads.receive(self.store.store, images.jpeg(120, 90), access_class=access_class)
        await self.work(upload)
        assert (await uploads.asset(upload))["status"] == "ready"
        self.diary.events.clear()
        return upload

    async def stored(self, upload: Upload) -> list[str]:
        """The keys of the upload's token that hold an object."""
        places = [
            *(("s3-private", key) for key in (upload.staging_key, *private_keys(upload.delivery_token, 1))),
            *((str(self.store.public_provider), key) for key in public_keys(upload.delivery_token, 1)),
        ]
        return [key for provider, key in places if await self.store.store.head(provider, key) is not None]

    def counted(self, name: str, **attributes: str) -> int:
        """The value of a counter."""
        data = self.reader.get_metrics_data()
        return sum(
            int(point.value)  # type: ignore[union-attr, misc]
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            if attributes.items() <= dict(point.attributes or {}).items()
        )


@pytest_asyncio.fixture
async def decoder() -> AsyncIterator[Decoder]:
    child = Decoder(DecoderLimits())
    yield child
    await child.close()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[CloudflareServer]:
    async with cloudflare_server() as running:
        yield running


@pytest_asyncio.fixture
async def workshop(
    database: DatabaseUnderTest,
    repository: ProcessingRepository,
    object_store: ObjectStore,
    decoder: Decoder,
    server: CloudflareServer,
) -> AsyncIterator[Workshop]:
    async with open_cdn(CloudflarePurge.read(server.variables), None, None) as cdn:
        assert cdn is not None
        yield Workshop(database, repository, object_store, decoder, cdn)


async def _erase(uploads: Uploads, upload: Upload) -> None:
    outcome = await uploads.owner.fetchval("SELECT outcome FROM assets.erase_asset($1)", upload.asset_id)
    assert outcome == "queued"


def _purge_events(upload: Upload) -> list[str]:
    keys = [upload.staging_key, *private_keys(upload.delivery_token, 1), *public_keys(upload.delivery_token, 1)]
    return sorted(f"removed {key}" for key in keys)


@pytest.mark.case("A4b.05")
async def test_purges_every_public_rendition_url_from_the_cdn_before_finishing_the_purge(
    workshop: Workshop, uploads: Uploads, server: CloudflareServer
) -> None:
    upload = await workshop.ready(uploads)
    await _erase(uploads, upload)
    await workshop.work(upload)

    events = workshop.diary.events
    assert (events[0], events[-2:]) == ("began", ["purged the cdn", "finished"])
    assert sorted(events[1:-2]) == _purge_events(upload)
    names = ("thumbnail", "tile", "card", "detail")
    assert server.purged == [f"https://media.example.com/a/{upload.delivery_token}/p1/{name}.webp" for name in names]
    assert await uploads.asset(upload) is None
    assert await workshop.stored(upload) == []
    assert await uploads.usage() == (0, 0, 0)
    assert workshop.counted("assets_processing_jobs_total", job_kind="purge_asset", outcome="purged") == 1


@pytest.mark.case("A4b.06")
@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (CdnUnavailable("503"), "assets.cdn_unavailable"),
        (CdnRefused("401/10000"), "assets.cdn_refused"),
        (StorageUnavailable("remove", "r2-public", "SlowDown"), "assets.storage_unavailable"),
        (StorageRefused("remove", "r2-public", "AccessDenied"), "assets.storage_refused"),
        (ZeroDivisionError(), "assets.processing_error"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_retries_a_cdn_or_storage_failure_without_finishing(
    workshop: Workshop, uploads: Uploads, trouble: Exception, code: str
) -> None:
    upload = await workshop.ready(uploads)
    await _erase(uploads, upload)
    if isinstance(trouble, CdnUnavailable | CdnRefused):
        workshop.cdn.troubles = [trouble] * 7
    else:
        workshop.store.failing = lambda key: trouble if key.startswith("a/") else None
    for attempt in range(7):  # a refusal and a fault of ours as well: nothing counts against a purge
        await workshop.work(upload)
        job = await _purge_job(uploads, upload)
        assert (job["state"], job["attempt_count"], job["processing_error_count"]) == ("pending", attempt + 1, 0)
        assert (job["error_class"], job["last_error_code"]) == ("storage", code)
        assert 3.9 <= job["delay"] <= 870
        assert (await uploads.asset(upload))["status"] == "purging"
        await uploads.owner.execute(
            "UPDATE assets.processing_jobs SET available_at = now() WHERE asset_id = $1", upload.asset_id
        )
    assert "finished" not in workshop.diary.events
    assert workshop.counted("assets_storage_errors_total", code=code) == 7
    expected = 7 if code.startswith("assets.cdn_") else 0
    assert workshop.counted("assets_cdn_purge_failures_total", code=code) == expected

    workshop.store.failing = lambda key: None
    await workshop.work(upload)
    assert workshop.diary.events[-1] == "finished"
    assert await uploads.asset(upload) is None
    assert await workshop.stored(upload) == []


async def test_waits_as_long_as_the_cdn_asks_and_no_longer_than_the_database_accepts(
    workshop: Workshop, uploads: Uploads, server: CloudflareServer
) -> None:
    upload = await workshop.ready(uploads)
    await _erase(uploads, upload)
    for asked, earliest, latest in (("120", 118, 121), ("86400", 868, 871), ("0", 15, 30)):
        server.trouble, server.retry_after = ["limited"], asked
        await workshop.work(upload)
        job = await _purge_job(uploads, upload)
        assert (job["state"], job["last_error_code"]) == ("pending", "assets.cdn_unavailable")
        assert earliest <= job["delay"] <= latest, asked
        await uploads.owner.execute(
            "UPDATE assets.processing_jobs SET available_at = now() WHERE asset_id = $1", upload.asset_id
        )


async def test_removes_what_attempts_left_that_no_row_names(workshop: Workshop, uploads: Uploads) -> None:
    upload = await uploads.receive(workshop.store.store, b"no photo at all")
    await workshop.work(upload)
    assert (await uploads.asset(upload))["status"] == "failed"
    leftovers = (("s3-private", private_keys(upload.delivery_token, 1)[0]), ("r2-public", _tile(upload)))
    for provider, key in leftovers:
        await workshop.store.put(provider, key, b"left by a dead worker", "image/webp", None)
    assert len(await workshop.stored(upload)) == 2
    await _erase(uploads, upload)
    await workshop.work(upload)
    assert await workshop.stored(upload) == []
    assert await uploads.asset(upload) is None


async def test_leaves_an_asset_alone_that_something_uses(workshop: Workshop, uploads: Uploads) -> None:
    upload = await workshop.ready(uploads)
    before = await workshop.stored(upload)
    await uploads.owner.execute(
        "UPDATE assets.assets SET created_at = now() - interval '40 days', ready_at = now() - interval '40 days',"
        " archived_at = now() - interval '31 days' WHERE id = $1",
        upload.asset_id,
    )
    await _claim(uploads, upload)
    assert await uploads.owner.fetchval("SELECT assets.enqueue_purge_candidates(10)") == 1
    await workshop.work(upload)
    assert workshop.diary.events == ["began"]
    assert (await uploads.asset(upload))["status"] == "ready"
    assert await workshop.stored(upload) == before
    assert workshop.counted("assets_processing_jobs_total", job_kind="purge_asset", outcome="referenced") == 1


async def test_stops_a_purge_whose_lease_was_lost_and_records_nothing(
    workshop: Workshop, uploads: Uploads, database: DatabaseUnderTest
) -> None:
    upload = await workshop.ready(uploads)
    await _erase(uploads, upload)
    thief = await database.owner()

    class Theft:
        async def purge(self, urls: Sequence[str]) -> None:
            await thief.execute(
                "UPDATE assets.processing_jobs SET state = 'pending', lease_owner = NULL, lease_token = NULL,"
                " lease_expires_at = NULL, available_at = now() + interval '1 hour'"
                " WHERE asset_id = $1 AND job_kind = 'purge_asset'",
                upload.asset_id,
            )

    workshop.cdn.cdn = Theft()
    await workshop.work(upload)
    job = await _purge_job(uploads, upload)
    assert (job["state"], job["attempt_count"], job["last_error_code"]) == ("pending", 0, None)
    assert (await uploads.asset(upload))["status"] == "purging"
    assert workshop.counted("assets_processing_leases_lost_total", job_kind="purge_asset") == 1


async def test_does_not_begin_to_remove_anything_after_its_deadline(workshop: Workshop, uploads: Uploads) -> None:
    upload = await workshop.ready(uploads)
    await _erase(uploads, upload)
    job = await workshop.repository.claim([JobKind.PURGE_ASSET], 120)
    assert job is not None
    with pytest.raises(StorageDeadlinePassed):
        await workshop.handlers[JobKind.PURGE_ASSET.value].handle(job, asyncio.get_running_loop().time() - 1)
    assert workshop.diary.events == ["began"]


class LateHandler:
    """Writes an object, as an attempt does, after the test has done what it wants in between."""

    def __init__(self, workshop: Workshop, upload: Upload, meanwhile: Callable[[ClaimedJob], object]) -> None:
        self.workshop = workshop
        self.upload = upload
        self.meanwhile = meanwhile

    async def handle(self, job: ClaimedJob, deadline: float) -> Outcome | Settled:
        await self.meanwhile(job)  # type: ignore[misc]
        await self.workshop.store.put("r2-public", _tile(self.upload), b"written late", "image/webp", None)
        return Outcome(OutcomeKind.RETRY_PROCESSING, "assets.processing_error", 5.0)


async def test_takes_back_what_it_wrote_after_its_asset_was_purged_from_the_store_and_from_the_cdn(
    workshop: Workshop, uploads: Uploads, server: CloudflareServer, decoder: Decoder
) -> None:
    upload = await uploads.receive(workshop.store.store, images.jpeg(120, 90))
    purges = Workshop(workshop.database, workshop.repository, workshop.store.store, decoder, workshop.cdn.cdn)
    del purges.handlers[JobKind.PROCESS_UPLOAD.value]

    async def purged_meanwhile(job: ClaimedJob) -> None:
        await _erase(uploads, upload)
        await purges.work(upload)
        assert await uploads.asset(upload) is None
        server.purged.clear()

    workshop.handlers[JobKind.PROCESS_UPLOAD.value] = LateHandler(workshop, upload, purged_meanwhile)
    await workshop.work(upload)
    assert await workshop.stored(upload) == []
    assert len(server.purged) == 4
    assert workshop.counted("assets_late_writes_total", gone="yes") == 1


async def test_leaves_the_objects_of_an_asset_that_another_attempt_owns_now(
    workshop: Workshop, uploads: Uploads
) -> None:
    upload = await uploads.receive(workshop.store.store, images.jpeg(120, 90))

    async def stolen(job: ClaimedJob) -> None:
        await uploads.owner.execute(
            "UPDATE assets.processing_jobs SET state = 'pending', lease_owner = NULL, lease_token = NULL,"
            " lease_expires_at = NULL, available_at = now() + interval '1 hour' WHERE id = $1",
            job.job_id,
        )

    workshop.handlers[JobKind.PROCESS_UPLOAD.value] = LateHandler(workshop, upload, stolen)
    await workshop.work(upload)
    assert await workshop.stored(upload) == [upload.staging_key, _tile(upload)]
    assert "purged the cdn" not in workshop.diary.events


async def test_a_lost_attempt_of_a_dead_lettered_upload_leaves_its_objects_for_the_requeue_or_the_purge(
    repository: ProcessingRepository, uploads: Uploads
) -> None:
    upload = await uploads.reserve(1_000)
    await uploads.complete(upload)
    job = await repository.claim([JobKind.PROCESS_UPLOAD], 120)
    assert job is not None
    assert await repository.lease_standing(job) is LeaseStanding.HELD
    await uploads.owner.execute(
        "UPDATE assets.processing_jobs SET processing_error_count = 4, lease_expires_at = now() WHERE id = $1",
        job.job_id,
    )
    assert await repository.lease_standing(job) is LeaseStanding.SUPERSEDED
    dead = await repository.claim([JobKind.PROCESS_UPLOAD], 120)
    assert dead is not None and dead.claim_state == "dead_lettered"
    assert await repository.lease_standing(job) is LeaseStanding.SUPERSEDED
    await _erase(uploads, upload)
    assert await repository.lease_standing(job) is LeaseStanding.UNWANTED


async def test_takes_back_what_an_earlier_attempt_stored_when_the_upload_fails_for_good(
    workshop: Workshop, uploads: Uploads
) -> None:
    upload = await uploads.receive(workshop.store.store, b"no photo at all")
    await workshop.store.put("r2-public", _tile(upload), b"of an attempt that died", "image/webp", None)
    await uploads.owner.execute(
        "UPDATE assets.processing_jobs SET attempt_count = 1 WHERE asset_id = $1", upload.asset_id
    )
    await workshop.work(upload)
    assert (await uploads.asset(upload))["failure_code"] == "assets.content_mismatch"
    assert await workshop.stored(upload) == []


async def test_says_so_when_a_late_write_cannot_be_taken_back(
    workshop: Workshop, uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.processing.late_writes._PAUSE_SECONDS", 0.001)
    upload = await uploads.reserve(1_000)
    await uploads.complete(upload)
    job = await workshop.repository.claim([JobKind.PROCESS_UPLOAD], 120)
    assert job is not None
    await _erase(uploads, upload)
    tries = 0

    def fail(key: str) -> Exception | None:
        nonlocal tries
        tries += key.startswith("m/")
        return StorageUnavailable("remove", "s3-private", "503")

    workshop.store.failing = fail
    await LateWrites(workshop.repository, workshop.eraser, workshop.instruments).take_back(job)
    assert workshop.counted("assets_late_writes_total", gone="no") == 1
    assert tries == 2 * 6


def _tile(upload: Upload) -> str:
    return f"a/{upload.delivery_token}/p1/tile.webp"


async def _claim(uploads: Uploads, upload: Upload) -> None:
    await uploads.owner.execute(
        "INSERT INTO assets.asset_claims (organization_id, consumer, reference, asset_id, revision)"
        " VALUES ($1, 'catalog', $2, $3, 1)",
        uploads.person.organization_id,
        secrets.token_hex(4),
        upload.asset_id,
    )


async def _purge_job(uploads: Uploads, upload: Upload):  # type: ignore[no-untyped-def]
    return await uploads.owner.fetchrow(
        "SELECT *, extract(epoch FROM available_at - now())::float8 AS delay FROM assets.processing_jobs"
        " WHERE asset_id = $1 AND job_kind = 'purge_asset'",
        upload.asset_id,
    )
