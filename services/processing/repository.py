"""The worker's whole database surface: one method per function of the schema (§6, §11)."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg

from libs.database.engine import Database
from libs.database.errors import CHECK_VIOLATION, DatabaseError
from services.processing.domain import (
    ClaimedJob,
    ClaimState,
    ExpiredUpload,
    LeaseLost,
    LeaseStanding,
    Outcome,
    OutcomeRefused,
    PurgeStep,
    StagingObject,
    StoredObject,
    Sweep,
)

LEASE_LOST: Final = "assets_job_lease_lost"

_CLAIM: Final = "SELECT * FROM assets.claim_processing_job($1, $2, $3, $4)"
# The database adds the delay to its own clock, so a worker whose clock is off cannot ask for too much.
_RECORD: Final = """
SELECT assets.record_processing_outcome($1, $2, $3, $4, now() + make_interval(secs => $5),
    $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""
_BEGIN_PURGE: Final = "SELECT * FROM assets.purge_asset_begin($1, $2)"
_FINISH_PURGE: Final = "SELECT assets.purge_asset_finish($1, $2)"
_STANDING: Final = "SELECT assets.lease_standing($1, $2, $3)"
_RELEASE: Final = "SELECT assets.release_processing_job($1, $2)"
_SECONDS_TO_NEXT: Final = "SELECT extract(epoch FROM assets.next_job_at($1) - now())::float8"
_BEGIN_SWEEP: Final = "SELECT assets.begin_sweep($1)"
_CONTINUE_SWEEP: Final = "SELECT assets.continue_sweep($1)"
_EXPIRE: Final = "SELECT * FROM assets.expire_uploads($1, $2)"
_RECONCILE: Final = "SELECT assets.reconcile_usage_batch($1, $2)"
_ENQUEUE_PURGES: Final = "SELECT assets.enqueue_purge_candidates($1)"
_PRUNE_JOBS: Final = "SELECT assets.prune_finished_jobs($1)"
_PRUNE_UPLOADS: Final = "SELECT assets.prune_settled_uploads($1)"


class ProcessingRepository:
    """Claims, outcomes and sweeps under the worker's login; every method may raise DatabaseUnavailable."""

    def __init__(self, database: Database, lease_owner: str) -> None:
        """`lease_owner` names this worker in the job rows; it is for people to read."""
        self._database = database
        self._lease_owner = lease_owner

    async def claim(self, job_kinds: Sequence[str], lease_seconds: int) -> ClaimedJob | None:
        """Claim at most one job of the kinds under a fresh lease; None when none is due."""
        lease_token = uuid4()
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_CLAIM, self._lease_owner, lease_token, lease_seconds, list(job_kinds))
        return None if row is None else _claimed(row, lease_token)

    async def record(self, job: ClaimedJob, outcome: Outcome) -> str:
        """Record an outcome under the claimed lease, all of it in one transaction.

        Returns `completed`, `pending` or `dead_lettered`. Raises LeaseLost when the lease is no longer ours, and
        OutcomeRefused with the constraint for any other refusal; nothing is recorded then.
        """
        variants = outcome.variants
        with _refusals(job):
            async with self._database.transaction() as connection:
                state: str = await connection.fetchval(
                    _RECORD,
                    job.job_id,
                    job.lease_token,
                    outcome.kind.value,
                    outcome.error_code,
                    outcome.delay_seconds,
                    [variant.code for variant in variants],
                    [variant.media_type for variant in variants],
                    [variant.byte_size for variant in variants],
                    [variant.checksum for variant in variants],
                    [variant.width for variant in variants],
                    [variant.height for variant in variants],
                    [variant.variant_id for variant in variants],
                    [variant.storage_object_id for variant in variants],
                    [variant.provider_code for variant in variants],
                    [variant.object_key for variant in variants],
                )
        return state

    async def begin_purge(self, job: ClaimedJob) -> PurgeStep:
        """Mark the job's asset `purging` in one transaction, unless something still uses it.

        Raises LeaseLost when the lease is no longer ours, and OutcomeRefused for any other refusal.
        """
        with _refusals(job):
            async with self._database.transaction() as connection:
                row = await connection.fetchrow(_BEGIN_PURGE, job.job_id, job.lease_token)
        return _purge_step(row)

    async def finish_purge(self, job: ClaimedJob) -> str:
        """Delete the asset's rows in one transaction, the job's own among them; what became of it. Raises as above."""
        with _refusals(job):
            async with self._database.transaction() as connection:
                outcome: str = await connection.fetchval(_FINISH_PURGE, job.job_id, job.lease_token)
        return outcome

    async def lease_standing(self, job: ClaimedJob) -> LeaseStanding:
        """Whether what the job's attempt wrote is still ours, somebody else's, or nobody's."""
        async with self._database.connection() as connection:
            standing: str = await connection.fetchval(_STANDING, job.job_id, job.lease_token, job.asset_id)
        return LeaseStanding(standing)

    async def release(self, job: ClaimedJob) -> bool:
        """Give a job back untried; False when the lease was no longer ours."""
        async with self._database.connection() as connection:
            answer: str = await connection.fetchval(_RELEASE, job.job_id, job.lease_token)
        return answer == "released"

    async def seconds_to_next_job(self, job_kinds: Sequence[str]) -> float | None:
        """How long until a job of the kinds can be claimed: 0 or less means now, None that none is open."""
        async with self._database.connection() as connection:
            seconds: float | None = await connection.fetchval(_SECONDS_TO_NEXT, list(job_kinds))
        return seconds

    @asynccontextmanager
    async def beginning(self, sweep: Sweep) -> AsyncIterator["SweepTransaction | None"]:
        """A transaction that holds the sweeps' lock, or None when the sweep is not due or another one runs."""
        async with self._database.transaction() as connection:
            yield SweepTransaction(connection) if await connection.fetchval(_BEGIN_SWEEP, sweep.value) else None

    @asynccontextmanager
    async def continuing(self, sweep: Sweep) -> AsyncIterator["SweepTransaction | None"]:
        """A further transaction of a sweep that has begun, under the same lock; None when another one runs."""
        async with self._database.transaction() as connection:
            yield SweepTransaction(connection) if await connection.fetchval(_CONTINUE_SWEEP, sweep.value) else None


class SweepTransaction:
    """What a sweep does while it holds the lock."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        """Borrow the connection of the transaction that took the lock."""
        self._connection = connection

    async def expire_uploads(self, batch: int, skip: Sequence[UUID]) -> tuple[ExpiredUpload, ...]:
        """Expire up to `batch` (1 to 500) abandoned uploads but the skipped ones."""
        rows = await self._connection.fetch(_EXPIRE, batch, list(skip))
        return tuple(_expired(row) for row in rows)

    async def reconcile_usage(self, after: UUID | None, batch: int) -> UUID | None:
        """Recompute the usage of up to `batch` organizations after one; the last one done, None after the end."""
        last: UUID | None = await self._connection.fetchval(_RECONCILE, after, batch)
        return last

    async def enqueue_purges(self, batch: int) -> int:
        """Queue purges of up to `batch` assets whose time has come (§16); how many."""
        return await self._count(_ENQUEUE_PURGES, batch)

    async def prune_jobs(self, batch: int) -> int:
        """Delete up to `batch` finished jobs that nothing reads any more; how many."""
        return await self._count(_PRUNE_JOBS, batch)

    async def prune_uploads(self, batch: int) -> int:
        """Delete up to `batch` settled uploads that nothing reads any more; how many."""
        return await self._count(_PRUNE_UPLOADS, batch)

    async def _count(self, statement: str, batch: int) -> int:
        done: int = await self._connection.fetchval(statement, batch)
        return done


@contextmanager
def _refusals(job: ClaimedJob) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate != CHECK_VIOLATION or error.constraint is None:
            raise
        if error.constraint == LEASE_LOST:
            raise LeaseLost(str(job.job_id)) from error
        raise OutcomeRefused(error.constraint) from error


def _purge_step(row: Any) -> PurgeStep:
    objects = [
        StoredObject(provider, key)
        for provider, key in zip(row["provider_codes"] or (), row["object_keys"] or (), strict=True)
    ]
    if row["staging_provider_code"] is not None and row["staging_object_key"] is not None:
        objects.append(StoredObject(row["staging_provider_code"], row["staging_object_key"]))
    return PurgeStep(row["outcome"], tuple(objects), row["delivery_token"], row["rendition_profile"])


def _expired(row: Any) -> ExpiredUpload:
    upload_id, provider_code, key = row["upload_id"], row["staging_provider_code"], row["staging_object_key"]
    if provider_code is None or key is None:
        return ExpiredUpload(upload_id, None)
    return ExpiredUpload(upload_id, StagingObject(provider_code, key))


def _claimed(row: Any, lease_token: UUID) -> ClaimedJob:
    return ClaimedJob(
        job_id=row["job_id"],
        lease_token=lease_token,
        organization_id=row["organization_id"],
        asset_id=row["asset_id"],
        job_kind=row["job_kind"],
        attempt_count=row["attempt_count"],
        processing_error_count=row["processing_error_count"],
        claim_state=ClaimState(row["claim_state"]),
        delivery_token=row["delivery_token"],
        access_class=row["access_class"],
        rendition_profile=row["rendition_profile"],
        upload_id=row["upload_id"],
        staging_provider_code=row["staging_provider_code"],
        staging_object_key=row["staging_object_key"],
        declared_media_type=row["declared_media_type"],
        declared_byte_size=row["declared_byte_size"],
        original_variant_id=row["original_variant_id"],
        upload_expires_at=row["upload_expires_at"],
        trace_context=row["trace_context"],
    )
