"""Claims one job at a time, lets its handler work outside any transaction, records what came of it (§11)."""

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from libs.database.errors import DatabaseError, DatabaseUnavailable
from services.processing.backoff import processing_delay_seconds, storage_delay_seconds
from services.processing.domain import (
    ClaimedJob,
    ClaimState,
    FailureClass,
    FailureCode,
    JobKind,
    LeaseLost,
    Outcome,
    OutcomeKind,
    OutcomeRefused,
    Settled,
    StagingObject,
)
from services.processing.failure_classifier import classify, classify_purge
from services.processing.instruments import Instruments
from services.processing.storage import Objects, remove_staging
from services.processing.wakeups import Wakeups

_SETTLED: Final = (OutcomeKind.READY, OutcomeKind.FAILED_PERMANENT)
_CDN_CODES: Final = (FailureCode.CDN_REFUSED, FailureCode.CDN_UNAVAILABLE)
_NEED_SOMEBODY: Final = (FailureCode.CDN_REFUSED, FailureCode.STORAGE_REFUSED, FailureCode.PROCESSING_ERROR)
_OVERDUE_PAUSE_SECONDS: Final = 0.1
_RECORD_PAUSE_SECONDS: Final = 0.5


class JobHandler(Protocol):
    """Does the work of one kind of job."""

    async def handle(self, job: ClaimedJob, deadline: float) -> Outcome | Settled:
        """The outcome of the job, reached before `deadline` on the event loop's clock; raises what went wrong.

        `Settled` when the handler has recorded the end itself.
        """
        ...


class LostWork(Protocol):
    """What has to be undone when a job turns out not to be ours any more."""

    async def take_back(self, job: ClaimedJob) -> None:
        """Leave nothing of the attempt behind that nobody needs; never raises."""
        ...


class JobRepository(Protocol):
    """The queue as the loop uses it."""

    async def claim(self, job_kinds: list[str], lease_seconds: int) -> ClaimedJob | None:
        """At most one job, under a lease that starts now."""
        ...

    async def record(self, job: ClaimedJob, outcome: Outcome) -> str:
        """The state the job is in afterwards; raises LeaseLost or OutcomeRefused."""
        ...

    async def release(self, job: ClaimedJob) -> bool:
        """Whether the job went back untried."""
        ...

    async def seconds_to_next_job(self, job_kinds: list[str]) -> float | None:
        """How long until one can be claimed."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a loop, in seconds. `margin` is what of a lease is kept for recording the outcome."""

    lease: int
    poll: float
    margin: float = 15.0
    drain: float = 3.0


class JobLoop:
    """One loop of a worker. It may be run once."""

    def __init__(
        self,
        repository: JobRepository,
        handlers: Mapping[str, JobHandler],
        objects: Objects,
        *,
        wakeups: Wakeups,
        pace: Pace,
        instruments: Instruments,
        lost_work: LostWork,
    ) -> None:
        """`handlers` by job kind: only these kinds are claimed."""
        self._repository = repository
        self._handlers = handlers
        self._kinds = list(handlers)
        self._objects = objects
        self._wakeups = wakeups
        self._pace = pace
        self._instruments = instruments
        self._lost_work = lost_work
        self._log: Any = structlog.stdlib.get_logger("ninaku.processing")
        self._tracer = trace.get_tracer("ninaku.processing")

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; a job that is not done soon after goes back to the queue untried."""
        while not stopping.is_set():
            self._wakeups.forget()
            claimed_at = asyncio.get_running_loop().time()
            try:
                job = await self._repository.claim(self._kinds, self._pace.lease)
            except (DatabaseUnavailable, DatabaseError) as error:
                self._log.warning("no job claimed", error=str(error))
                await self._wakeups.wait(self._pace.poll, stopping)
                continue
            if job is None:
                await self._rest(stopping)
            elif job.claim_state is ClaimState.LEASED:
                await self._work(job, claimed_at, stopping)
            else:
                self._count(job, job.claim_state.value)
                if job.claim_state is ClaimState.DEAD_LETTERED:
                    self._dead_lettered(job, "assets.lease_expired")

    async def _rest(self, stopping: asyncio.Event) -> None:
        try:
            seconds = await self._repository.seconds_to_next_job(self._kinds)
        except (DatabaseUnavailable, DatabaseError):
            seconds = None
        poll = self._pace.poll
        # A job that is due and was not claimed is in another worker's hands at this moment.
        pause = poll if seconds is None else min(poll, max(seconds, _OVERDUE_PAUSE_SECONDS))
        await self._wakeups.wait(pause, stopping)

    async def _work(self, job: ClaimedJob, claimed_at: float, stopping: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        span = self._tracer.start_as_current_span(
            f"process {job.job_kind}",
            kind=trace.SpanKind.CONSUMER,
            links=span_links(job.trace_context),
            attributes={"assets.job_kind": job.job_kind, "assets.attempt_count": job.attempt_count},
        )
        names = structlog.contextvars.bound_contextvars(job_id=str(job.job_id), asset_id=str(job.asset_id))
        with span, names:
            outcome = await self._outcome(job, claimed_at + self._pace.lease - self._pace.margin, stopping)
            if outcome is None:
                await self._release(job)
            elif isinstance(outcome, Settled):
                self._count(job, outcome.result)
                self._log.info("job settled", result=outcome.result)
            else:
                await self._record(job, outcome, claimed_at + self._pace.lease)
        self._instruments.job_seconds.record(loop.time() - claimed_at, {"job_kind": job.job_kind})

    async def _outcome(self, job: ClaimedJob, deadline: float, stopping: asyncio.Event) -> Outcome | Settled | None:
        """What the handler made of the job, or None when the worker stops before it is done."""
        handling = asyncio.create_task(self._handlers[job.job_kind].handle(job, deadline))
        stop = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({handling, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not handling.done():
                await asyncio.wait({handling}, timeout=self._pace.drain)
            if not handling.done():
                return None
            return self._judge(job, handling)
        finally:
            stop.cancel()
            handling.cancel()
            await asyncio.wait({handling, stop})

    def _judge(self, job: ClaimedJob, handling: asyncio.Task[Outcome | Settled]) -> Outcome | Settled:
        error = handling.exception()
        if error is None:
            return handling.result()
        if isinstance(error, LeaseLost):
            self._lose(job)
            return Settled("lease_lost")
        is_purge = job.job_kind == JobKind.PURGE_ASSET
        failure = (classify_purge if is_purge else classify)(error)
        match failure.failure_class:
            case FailureClass.PERMANENT:
                self._log.info("photo refused", code=failure.code.value)
                return Outcome(OutcomeKind.FAILED_PERMANENT, failure.code.value)
            case FailureClass.STORAGE:
                self._instruments.storage_errors.add(1, {"code": failure.code.value})
                if failure.code in _CDN_CODES:
                    self._instruments.cdn_failures.add(1, {"code": failure.code.value})
                # A refusal does not pass by itself, and a fault of ours even less: somebody has to see them.
                needs_somebody = failure.code in _NEED_SOMEBODY
                self._log.log(
                    logging.ERROR if needs_somebody else logging.WARNING,
                    "storage retry",
                    code=failure.code.value,
                    error=str(error),
                    exc_info=error if failure.code is FailureCode.PROCESSING_ERROR else None,
                )
                delay = storage_delay_seconds(job.attempt_count, random.random, failure.retry_after_seconds)
                return Outcome(OutcomeKind.RETRY_STORAGE, failure.code.value, delay)
            case FailureClass.PROCESSING:
                self._log.error("processing error", code=failure.code.value, exc_info=error)
                delay = processing_delay_seconds(job.processing_error_count)
                return Outcome(OutcomeKind.RETRY_PROCESSING, failure.code.value, delay)

    async def _record(self, job: ClaimedJob, outcome: Outcome, lease_end: float) -> None:
        try:
            state, outcome = await self._record_while_leased(job, outcome, lease_end)
        except LeaseLost:
            self._lose(job)
            await self._take_back(job)
            return
        except (DatabaseUnavailable, DatabaseError) as error:
            self._log.error("outcome not recorded", outcome=outcome.kind.value, error=str(error))
            await self._take_back(job)
            return
        except OutcomeRefused as refused:
            self._log.error("outcome refused", outcome=outcome.kind.value, constraint=refused.constraint)
            await self._take_back(job)
            return
        self._count(job, outcome.kind.value)
        if state == ClaimState.DEAD_LETTERED:
            self._dead_lettered(job, outcome.error_code or "")
        if outcome.kind is OutcomeKind.READY:
            self._log.info("ready", bytes=sum(variant.byte_size for variant in outcome.variants))
        if outcome.kind in _SETTLED and job.staging_provider_code and job.staging_object_key:
            await remove_staging(self._objects, StagingObject(job.staging_provider_code, job.staging_object_key))
        if outcome.kind is OutcomeKind.FAILED_PERMANENT and job.attempt_count > 0:
            # An earlier attempt may have died between its writes and its record.
            await self._take_back(job)

    async def _record_while_leased(self, job: ClaimedJob, outcome: Outcome, lease_end: float) -> tuple[str, Outcome]:
        """Record once; a database that is away is asked again while the lease lasts.

        Returns the job's state and the outcome that was recorded. One that was recorded just before the connection
        broke answers LeaseLost to the second try.
        """
        while True:
            try:
                return await self._repository.record(job, outcome), outcome
            except DatabaseUnavailable:
                if asyncio.get_running_loop().time() + _RECORD_PAUSE_SECONDS >= lease_end:
                    raise
                await asyncio.sleep(_RECORD_PAUSE_SECONDS)
            except OutcomeRefused as refused:
                if outcome.kind is not OutcomeKind.READY or refused.constraint == "assets_outcome_state":
                    raise
                # A fault of ours: counted like one instead of being tried again at every expired lease.
                self._log.error("ready outcome refused", constraint=refused.constraint)
                delay = processing_delay_seconds(job.processing_error_count)
                outcome = Outcome(OutcomeKind.RETRY_PROCESSING, FailureCode.PROCESSING_ERROR.value, delay)

    def _lose(self, job: ClaimedJob) -> None:
        self._instruments.leases_lost.add(1, {"job_kind": job.job_kind})
        self._log.warning("lease lost, nothing recorded")

    async def _take_back(self, job: ClaimedJob) -> None:
        # A purge writes nothing. Anything else may have put objects after another worker, or a purge, took over.
        if job.job_kind != JobKind.PURGE_ASSET:
            await self._lost_work.take_back(job)

    async def _release(self, job: ClaimedJob) -> None:
        try:
            released = await self._repository.release(job)
        except (DatabaseUnavailable, DatabaseError) as error:
            self._log.warning("job not released, its lease will run out", error=str(error))
            return
        self._count(job, "released" if released else "lease_lost")
        self._log.info("job released", released=released)
        if not released:
            await self._take_back(job)

    def _dead_lettered(self, job: ClaimedJob, code: str) -> None:
        self._instruments.dead_letters.add(1, {"job_kind": job.job_kind, "code": code})
        self._log.error("job dead-lettered", job_id=str(job.job_id), code=code)

    def _count(self, job: ClaimedJob, outcome: str) -> None:
        self._instruments.jobs.add(1, {"job_kind": job.job_kind, "outcome": outcome})


def span_links(trace_context: str | None) -> list[trace.Link]:
    """The link to the trace that completed the upload; none when its `traceparent` is absent or unreadable."""
    if not trace_context:
        return []
    context = TraceContextTextMapPropagator().extract({"traceparent": trace_context})
    span_context = trace.get_current_span(context).get_span_context()
    return [trace.Link(span_context)] if span_context.is_valid else []
