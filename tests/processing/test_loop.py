"""The claim loop on the real queue, with handlers that stand still where a test wants to look."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from opentelemetry import trace

from libs.storage.errors import StorageUnavailable
from services.processing.domain import (
    ClaimedJob,
    ClaimState,
    FailureCode,
    ImageRefused,
    JobKind,
    Outcome,
    RenderedPhoto,
    StorageDeadlinePassed,
)
from services.processing.instruments import Instruments
from services.processing.loop import JobLoop, Pace, span_links
from services.processing.process_upload import ProcessUpload
from services.processing.repository import ProcessingRepository
from services.processing.wakeups import JobListener, Wakeups
from tests.support.database import Connection, DatabaseUnderTest
from tests.support.uploads import Upload, Uploads

Behaviour = Callable[[ClaimedJob, float], Awaitable[Outcome]]


class Handler:
    """A handler that does what the test says and remembers what it was given."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.jobs: list[ClaimedJob] = []

    async def handle(self, job: ClaimedJob, deadline: float) -> Outcome:
        self.jobs.append(job)
        return await self.behaviour(job, deadline)


class Bucket:
    """A store that has nothing and remembers what was removed."""

    public_provider = "r2-public"

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def head(self, provider: str, key: str) -> int | None:
        return None

    async def read_at_most(self, provider: str, key: str, max_bytes: int) -> bytes | None:
        return None

    async def put(self, provider: str, key: str, data: bytes, content_type: str, cache_control: str | None) -> None:
        raise AssertionError("nothing is stored here")

    async def remove(self, provider: str, key: str) -> None:
        self.removed.append(key)


class LostWork:
    """Remembers which jobs were lost."""

    def __init__(self) -> None:
        self.jobs: list[ClaimedJob] = []

    async def take_back(self, job: ClaimedJob) -> None:
        self.jobs.append(job)


async def _refuse(job: ClaimedJob, deadline: float) -> Outcome:
    raise ImageRefused(FailureCode.IMAGE_CORRUPT)


class Onlooker:
    """A superuser who sees what the worker's connections do."""

    def __init__(self, connection: Connection, database_name: str) -> None:
        self._connection = connection
        self._database_name = database_name

    async def connections(self) -> list[Any]:
        """The connections of the worker's login: state, start of their transaction, last statement."""
        rows: list[Any] = await self._connection.fetch(
            "SELECT pid, state, xact_start, query, application_name FROM pg_stat_activity"
            " WHERE usename = 'ninaku_processing_worker' AND datname = $1",
            self._database_name,
        )
        return rows

    async def sees_a_listener(self) -> bool:
        return any(connection["query"].startswith("LISTEN") for connection in await self.connections())

    async def cut_listeners(self) -> None:
        for connection in await self.connections():
            if connection["application_name"].endswith("listener"):
                await self._connection.execute("SELECT pg_terminate_backend($1)", connection["pid"])


@pytest_asyncio.fixture
async def onlooker(database: DatabaseUnderTest) -> AsyncIterator[Onlooker]:
    connection = await asyncpg.connect(database.server.admin_dsn)
    yield Onlooker(connection, database.name)
    await connection.close()


class Loops:
    """Makes loops on one queue and runs them for as long as a test needs."""

    def __init__(self, repository: ProcessingRepository, instruments: Instruments) -> None:
        self.repository = repository
        self.instruments = instruments
        self.bucket = Bucket()
        self.lost_work = LostWork()
        self.wakeups = Wakeups()

    @asynccontextmanager
    async def running(
        self, handler: Handler, *, lease: int = 120, poll: float = 0.5, drain: float = 3.0
    ) -> AsyncIterator[asyncio.Event]:
        stopping = asyncio.Event()
        loop = JobLoop(
            self.repository,
            {JobKind.PROCESS_UPLOAD: handler},
            self.bucket,
            wakeups=self.wakeups,
            pace=Pace(lease=lease, poll=poll, drain=drain),
            instruments=self.instruments,
            lost_work=self.lost_work,
        )
        task = asyncio.create_task(loop.run(stopping))
        try:
            yield stopping
        finally:
            stopping.set()
            async with asyncio.timeout(20):
                await task


@pytest.fixture
def loops(repository: ProcessingRepository, instruments: Instruments) -> Loops:
    return Loops(repository, instruments)


async def _queued(uploads: Uploads, number: int) -> list[Upload]:
    queued = [await uploads.reserve(1_000) for _ in range(number)]
    for upload in queued:
        await uploads.complete(upload)
    return queued


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.01)


async def _state(uploads: Uploads, upload: Upload, state: str) -> None:
    async def reached() -> bool:
        return bool((await uploads.job(upload))["state"] == state)

    await _until(reached)


@pytest.mark.case("A3a.01")
async def test_claims_one_job_at_a_time_holds_no_transaction_while_its_handler_runs_and_records_with_the_claimed_lease(
    loops: Loops, uploads: Uploads, onlooker: Onlooker
) -> None:
    first, second = await _queued(uploads, 2)
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def wait(job: ClaimedJob, deadline: float) -> Outcome:
        inside.set()
        await go_on.wait()
        raise ImageRefused(FailureCode.IMAGE_CORRUPT)

    handler = Handler(wait)
    async with loops.running(handler):
        await asyncio.wait_for(inside.wait(), 10)
        jobs = await uploads.owner.fetch("SELECT asset_id, state, lease_token FROM assets.processing_jobs")
        assert sorted(job["state"] for job in jobs) == ["leased", "pending"]
        leased = next(job for job in jobs if job["state"] == "leased")
        assert (leased["asset_id"], leased["lease_token"]) == (first.asset_id, handler.jobs[0].lease_token)
        connections = await onlooker.connections()
        assert connections
        assert all(connection["state"] == "idle" and connection["xact_start"] is None for connection in connections)
        assert len(handler.jobs) == 1
        go_on.set()
        await _state(uploads, second, "completed")
    assert [job.asset_id for job in handler.jobs] == [first.asset_id, second.asset_id]
    for upload in (first, second):
        assert (await uploads.asset(upload))["failure_code"] == "assets.image_corrupt"
    assert loops.bucket.removed == [first.staging_key, second.staging_key]


@pytest.mark.case("A3a.02")
async def test_stops_recording_when_the_lease_was_lost_and_claims_the_next_job(
    loops: Loops, uploads: Uploads, database: DatabaseUnderTest
) -> None:
    first, second = await _queued(uploads, 2)
    thief = await database.owner()

    async def lose_the_first(job: ClaimedJob, deadline: float) -> Outcome:
        if job.asset_id == first.asset_id:
            await thief.execute(
                "UPDATE assets.processing_jobs SET lease_token = gen_random_uuid() WHERE id = $1", job.job_id
            )
        raise ImageRefused(FailureCode.IMAGE_CORRUPT)

    handler = Handler(lose_the_first)
    async with loops.running(handler):
        await _state(uploads, second, "completed")
    job = await uploads.job(first)
    assert (job["state"], job["attempt_count"], job["processing_error_count"]) == ("leased", 0, 0)
    assert (await uploads.asset(first))["status"] == "processing"
    assert loops.bucket.removed == [second.staging_key]
    assert (await uploads.asset(second))["status"] == "failed"


async def test_gives_the_job_back_untried_when_the_worker_stops_and_the_handler_is_not_done_soon(
    loops: Loops, uploads: Uploads
) -> None:
    (upload,) = await _queued(uploads, 1)
    inside, cancelled = asyncio.Event(), asyncio.Event()

    async def forever(job: ClaimedJob, deadline: float) -> Outcome:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with loops.running(Handler(forever), drain=0.05) as stopping:
        await asyncio.wait_for(inside.wait(), 10)
        stopping.set()
    assert cancelled.is_set()
    job = await uploads.job(upload)
    assert (job["state"], job["attempt_count"], job["processing_error_count"]) == ("pending", 0, 0)
    assert job["lease_token"] is None


async def test_records_what_is_done_soon_after_the_worker_was_told_to_stop(loops: Loops, uploads: Uploads) -> None:
    (upload,) = await _queued(uploads, 1)
    inside = asyncio.Event()

    async def a_moment(job: ClaimedJob, deadline: float) -> Outcome:
        inside.set()
        await asyncio.sleep(0.1)
        raise ImageRefused(FailureCode.IMAGE_CORRUPT)

    async with loops.running(Handler(a_moment)) as stopping:
        await asyncio.wait_for(inside.wait(), 10)
        stopping.set()
    assert (await uploads.job(upload))["state"] == "completed"


@pytest.mark.parametrize(
    ("error", "error_class", "code", "counted"),
    [
        (StorageUnavailable("put", "r2-public", "SlowDown"), "storage", "assets.storage_unavailable", 0),
        (StorageDeadlinePassed(), "storage", "assets.storage_unavailable", 0),
        (RuntimeError("boom"), "processing", "assets.processing_error", 1),
    ],
)
async def test_puts_a_failed_job_back_with_its_class_and_a_delay_that_the_database_accepts(
    loops: Loops, uploads: Uploads, error: Exception, error_class: str, code: str, counted: int
) -> None:
    (upload,) = await _queued(uploads, 1)

    async def fail(job: ClaimedJob, deadline: float) -> Outcome:
        raise error

    async def recorded() -> bool:
        return bool((await uploads.job(upload))["attempt_count"])

    async with loops.running(Handler(fail)):
        await _until(recorded)
    job = await uploads.job(upload)
    assert (job["state"], job["error_class"], job["last_error_code"]) == ("pending", error_class, code)
    assert job["processing_error_count"] == counted
    ahead = await uploads.owner.fetchval(
        "SELECT extract(epoch FROM available_at - updated_at)::float FROM assets.processing_jobs"
    )
    assert 3.9 <= ahead <= 6.1


async def test_dead_letters_at_the_fifth_processing_error_and_keeps_the_staging_object(
    loops: Loops, uploads: Uploads
) -> None:
    (upload,) = await _queued(uploads, 1)
    await uploads.owner.execute("UPDATE assets.processing_jobs SET processing_error_count = 4, attempt_count = 4")

    async def fail(job: ClaimedJob, deadline: float) -> Outcome:
        raise RuntimeError

    async with loops.running(Handler(fail)):
        await _state(uploads, upload, "dead_lettered")
    assert (await uploads.asset(upload))["failure_code"] == "assets.processing_exhausted"
    assert loops.bucket.removed == []


async def test_gives_the_handler_a_deadline_15_seconds_before_the_lease_ends(loops: Loops, uploads: Uploads) -> None:
    (upload,) = await _queued(uploads, 1)
    deadlines: list[float] = []

    async def look(job: ClaimedJob, deadline: float) -> Outcome:
        deadlines.append(deadline - asyncio.get_running_loop().time())
        raise ImageRefused(FailureCode.IMAGE_CORRUPT)

    async with loops.running(Handler(look), lease=60):
        await _state(uploads, upload, "completed")
    assert 0 < deadlines[0] <= 45


async def test_calls_storage_that_is_not_done_by_the_deadline_a_storage_failure() -> None:
    class Stuck(Bucket):
        async def head(self, provider: str, key: str) -> int | None:
            await asyncio.Event().wait()
            return None

    handler = ProcessUpload(Stuck(), _NoDecoder(), lambda: pytest.fail("no id is needed"), lambda: pytest.fail("time"))
    with pytest.raises(StorageDeadlinePassed):
        await handler.handle(_job(), asyncio.get_running_loop().time() + 0.05)


async def test_wakes_for_a_queued_job_long_before_it_would_poll(
    loops: Loops, uploads: Uploads, database: DatabaseUnderTest, onlooker: Onlooker
) -> None:
    stopping = asyncio.Event()
    listener = JobListener(database.dsn("ninaku_processing_worker"), "ninaku-media-worker", loops.wakeups)
    listening = asyncio.create_task(listener.run(stopping))
    async with loops.running(Handler(_refuse), poll=3_600):
        await _until(onlooker.sees_a_listener)
        (upload,) = await _queued(uploads, 1)
        await _state(uploads, upload, "completed")
        # After a reconnect it claims what was queued while nobody listened, and is woken as before.
        await onlooker.cut_listeners()
        (second,) = await _queued(uploads, 1)
        await _state(uploads, second, "completed")
        await _until(onlooker.sees_a_listener)
        (third,) = await _queued(uploads, 1)
        await _state(uploads, third, "completed")
    stopping.set()
    await listening


async def test_sleeps_until_a_delayed_job_is_due(loops: Loops, uploads: Uploads) -> None:
    (upload,) = await _queued(uploads, 1)
    await uploads.owner.execute(
        "UPDATE assets.processing_jobs SET available_at = now() + interval '1 second', queue_rank = NULL"
    )
    async with loops.running(Handler(_refuse), poll=3_600):
        await _state(uploads, upload, "completed")


async def test_links_its_span_to_the_trace_that_completed_the_upload(loops: Loops, uploads: Uploads) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    upload = await uploads.reserve(1_000)
    await uploads.complete(upload, parent)
    handler = Handler(_refuse)
    async with loops.running(handler):
        await _state(uploads, upload, "completed")
    assert handler.jobs[0].trace_context == parent
    (link,) = span_links(parent)
    assert trace.format_trace_id(link.context.trace_id) == "0af7651916cd43dd8448eb211c80319c"
    assert span_links(None) == span_links("nonsense") == []


class _NoDecoder:
    async def render(self, data: bytes, profile: int, seconds: float | None = None) -> RenderedPhoto:
        raise AssertionError("nothing is decoded")


def _job() -> ClaimedJob:
    return ClaimedJob(
        job_id=uuid4(),
        lease_token=uuid4(),
        organization_id=uuid4(),
        asset_id=uuid4(),
        job_kind=JobKind.PROCESS_UPLOAD,
        attempt_count=0,
        processing_error_count=0,
        claim_state=ClaimState.LEASED,
        delivery_token="a" * 26,
        access_class="public",
        rendition_profile=1,
        upload_id=uuid4(),
        staging_provider_code="s3-private",
        staging_object_key="in/" + "a" * 26,
        declared_media_type="image/jpeg",
        declared_byte_size=1_000,
        original_variant_id=uuid4(),
        upload_expires_at=datetime(2026, 1, 1, tzinfo=UTC),
        trace_context=None,
    )
