"""What a job goes through when nothing works, on the real queue, with delays shifted instead of waited for."""

import asyncio

import pytest

from libs.storage.errors import StorageUnavailable
from services.processing.domain import ClaimedJob, DecoderFailed, Outcome
from tests.processing.test_loop import Handler, Loops
from tests.support.uploads import Upload, Uploads

_FIFTEEN_MINUTES = 900.0


@pytest.fixture
def loops(repository, instruments) -> Loops:  # type: ignore[no-untyped-def]
    return Loops(repository, instruments)


async def _one_attempt(loops: Loops, uploads: Uploads, upload: Upload, error: Exception) -> tuple[str, float]:
    """Let the job fail once; the state it is in afterwards, and the seconds until it is tried again."""

    async def fail(job: ClaimedJob, deadline: float) -> Outcome:
        raise error

    handler = Handler(fail)
    async with loops.running(handler) as stopping:
        while not handler.jobs or (await uploads.job(upload))["state"] == "leased":
            await asyncio.sleep(0.01)
        stopping.set()
    row = await uploads.owner.fetchrow(
        "SELECT state, extract(epoch FROM available_at - updated_at)::float8 AS delay"
        " FROM assets.processing_jobs WHERE asset_id = $1",
        upload.asset_id,
    )
    await uploads.owner.execute(
        "UPDATE assets.processing_jobs SET available_at = now() WHERE asset_id = $1 AND state = 'pending'",
        upload.asset_id,
    )
    return row["state"], row["delay"]


@pytest.mark.case("A3c.01")
async def test_retries_a_storage_outage_with_capped_backoff_and_no_attempt_cap_and_dead_letters_only_the_fifth_processing_error(  # noqa: E501
    loops: Loops, uploads: Uploads
) -> None:
    upload = await uploads.reserve(1_000)
    await uploads.complete(upload)
    outage = StorageUnavailable("put", "r2-public", "SlowDown")
    for attempt in range(14):
        state, delay = await _one_attempt(loops, uploads, upload, outage)
        assert state == "pending"
        middle = 5.0 * 2**attempt
        assert min(0.8 * middle, 690.0) <= delay <= min(1.2 * middle, 870.0) + 0.1
        assert delay < _FIFTEEN_MINUTES
    job = await uploads.job(upload)
    assert (job["attempt_count"], job["processing_error_count"], job["error_class"]) == (14, 0, "storage")
    assert job["last_error_code"] == "assets.storage_unavailable"

    for expected in (5.0, 30.0, 120.0, 600.0):
        state, delay = await _one_attempt(loops, uploads, upload, DecoderFailed("died"))
        assert (state, round(delay)) == ("pending", expected)
        # A storage failure in between neither counts nor moves the processing schedule on.
        assert (await _one_attempt(loops, uploads, upload, outage))[0] == "pending"
    assert (await uploads.asset(upload))["status"] == "processing"
    state, _ = await _one_attempt(loops, uploads, upload, DecoderFailed("died"))
    assert state == "dead_lettered"
    job = await uploads.job(upload)
    assert (job["attempt_count"], job["processing_error_count"]) == (23, 5)
    asset = await uploads.asset(upload)
    assert (asset["status"], asset["failure_code"]) == ("failed", "assets.processing_exhausted")
    assert await uploads.usage() == (0, 0, 0)
