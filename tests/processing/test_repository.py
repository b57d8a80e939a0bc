"""The worker's login and what it can do."""

from uuid import uuid4

import asyncpg
import pytest

from libs.database.engine import Database
from services.processing.domain import (
    ClaimState,
    JobKind,
    LeaseLost,
    Outcome,
    OutcomeKind,
    OutcomeRefused,
    StagingObject,
    Sweep,
)
from services.processing.repository import ProcessingRepository
from tests.support.database import DatabaseUnderTest
from tests.support.uploads import Uploads

KINDS = [JobKind.PROCESS_UPLOAD]
CORRUPT = Outcome(OutcomeKind.FAILED_PERMANENT, "assets.image_corrupt")


@pytest.mark.case("A3a.04")
async def test_claims_records_and_expires_through_the_worker_role_only(
    repository: ProcessingRepository, uploads: Uploads, database: DatabaseUnderTest
) -> None:
    completed = await uploads.reserve(1_000, "image/png")
    await uploads.complete(completed)
    abandoned = await uploads.reserve(2_000, expires_in_seconds=-1)

    job = await repository.claim(KINDS, 120)
    assert job is not None
    assert (job.claim_state, job.asset_id, job.upload_id) == (
        ClaimState.LEASED,
        completed.asset_id,
        completed.upload_id,
    )
    assert (job.staging_provider_code, job.staging_object_key) == ("s3-private", completed.staging_key)
    assert (job.declared_media_type, job.declared_byte_size) == ("image/png", 1_000)
    assert (job.delivery_token, job.access_class, job.rendition_profile) == (completed.delivery_token, "public", 1)
    assert job.original_variant_id == completed.original_variant_id
    assert await repository.claim(KINDS, 120) is None
    assert await repository.record(job, CORRUPT) == "completed"
    async with repository.beginning(Sweep.EXPIRE_UPLOADS) as work:
        assert work is not None
        (expired,) = await work.expire_uploads(500, [])
    assert (expired.upload_id, expired.staging) == (
        abandoned.upload_id,
        StagingObject("s3-private", abandoned.staging_key),
    )

    worker = await database.login("ninaku_processing_worker")
    for table in ("assets", "uploads", "processing_jobs", "asset_variants", "storage_objects", "organization_usage"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await worker.fetch(f"SELECT * FROM assets.{table}")
    for login in ("ninaku_admission", "ninaku_library", "ninaku_delivery", "ninaku_processing"):
        other = await database.login(login)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await other.fetch("SELECT * FROM assets.claim_processing_job('x', $1, 120, $2)", uuid4(), KINDS)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await other.fetch("SELECT * FROM assets.expire_uploads(1, '{}')")


async def test_reports_a_lost_lease_and_records_nothing(repository: ProcessingRepository, uploads: Uploads) -> None:
    upload = await uploads.reserve(1_000)
    await uploads.complete(upload)
    job = await repository.claim(KINDS, 120)
    assert job is not None
    await uploads.owner.execute("UPDATE assets.processing_jobs SET lease_expires_at = now()")
    with pytest.raises(LeaseLost):
        await repository.record(job, CORRUPT)
    assert not await repository.release(job)
    assert (await uploads.asset(upload))["status"] == "processing"


async def test_names_the_rule_that_an_outcome_broke(repository: ProcessingRepository, uploads: Uploads) -> None:
    upload = await uploads.reserve(1_000)
    await uploads.complete(upload)
    job = await repository.claim(KINDS, 120)
    assert job is not None
    with pytest.raises(OutcomeRefused) as refused:
        await repository.record(job, Outcome(OutcomeKind.READY))
    assert refused.value.constraint == "assets_outcome_shape"
    with pytest.raises(OutcomeRefused) as refused:
        await repository.record(job, Outcome(OutcomeKind.RETRY_STORAGE, "assets.storage_unavailable", 901.0))
    assert refused.value.constraint == "assets_retry_backoff"


async def test_gives_a_job_back_untried(repository: ProcessingRepository, uploads: Uploads) -> None:
    await uploads.complete(await uploads.reserve(1_000))
    job = await repository.claim(KINDS, 120)
    assert job is not None
    assert await repository.release(job)
    again = await repository.claim(KINDS, 120)
    assert again is not None
    assert (again.job_id, again.attempt_count, again.processing_error_count) == (job.job_id, 0, 0)
    assert again.lease_token != job.lease_token


async def test_tells_how_long_until_the_next_job(
    repository: ProcessingRepository, uploads: Uploads, worker_database: Database
) -> None:
    assert await repository.seconds_to_next_job(KINDS) is None
    await uploads.complete(await uploads.reserve(1_000))
    due = await repository.seconds_to_next_job(KINDS)
    assert due is not None
    assert due <= 0
    assert await repository.seconds_to_next_job(["purge_asset"]) is None
    assert await repository.claim(KINDS, 120) is not None
    leased = await repository.seconds_to_next_job(KINDS)
    assert leased is not None
    assert 100 < leased <= 120


async def test_settles_instead_of_leasing_a_job_whose_asset_no_longer_waits(
    repository: ProcessingRepository, uploads: Uploads
) -> None:
    upload = await uploads.reserve(1_000)
    await uploads.complete(upload)
    await uploads.owner.execute(
        "UPDATE assets.assets SET status = 'failed', failed_at = now(), failure_code = 'assets.erased' WHERE id = $1",
        upload.asset_id,
    )
    job = await repository.claim(KINDS, 120)
    assert job is not None
    assert job.claim_state is ClaimState.COMPLETED
    assert await repository.claim(KINDS, 120) is None
