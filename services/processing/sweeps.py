"""The sweeps that one worker of the fleet runs per period.

Abandoned uploads expire, usage is recounted (§11), purges are queued for assets whose time has come (§16), and jobs and
uploads that nothing reads any more are deleted.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol
from uuid import UUID

import structlog

from libs.database.errors import DatabaseError, DatabaseUnavailable
from services.processing.domain import ExpiredUpload, StagingObject, Sweep
from services.processing.instruments import Instruments
from services.processing.storage import Objects, remove_staging

BATCH: Final = 500
LOOK_SECONDS: Final = 20.0
"""How often a worker asks whether a sweep is due; the periods themselves are rows of the database."""
_REMOVALS_AT_ONCE: Final = 8


class SweepWork(Protocol):
    """What can be done while the sweeps' lock is held."""

    async def expire_uploads(self, batch: int, skip: list[UUID]) -> tuple[ExpiredUpload, ...]:
        """Expire up to `batch` uploads but the skipped ones."""
        ...

    async def reconcile_usage(self, after: UUID | None, batch: int) -> UUID | None:
        """Recount up to `batch` organizations; the last one, None after the end."""
        ...

    async def enqueue_purges(self, batch: int) -> int:
        """Queue up to `batch` purges; how many."""
        ...

    async def prune_jobs(self, batch: int) -> int:
        """Delete up to `batch` finished jobs; how many."""
        ...

    async def prune_uploads(self, batch: int) -> int:
        """Delete up to `batch` settled uploads; how many."""
        ...


class SweepRepository(Protocol):
    """Opens the transactions that hold the lock."""

    def beginning(self, sweep: Sweep) -> AbstractAsyncContextManager[SweepWork | None]:
        """None when the sweep is not due or any sweep runs."""
        ...

    def continuing(self, sweep: Sweep) -> AbstractAsyncContextManager[SweepWork | None]:
        """None when another sweep runs."""
        ...


class Sweeps:
    """Runs what is due. `run` is for a worker; each sweep can be run once by itself."""

    def __init__(self, repository: SweepRepository, objects: Objects, instruments: Instruments) -> None:
        """Nothing is looked at before `run`."""
        self._repository = repository
        self._objects = objects
        self._instruments = instruments
        self._log: Any = structlog.stdlib.get_logger("ninaku.processing")
        # Uploads that failed even after a recount. They are left out until the next nightly recount clears the list,
        # so that no number of bad rows fills a batch.
        self._isolated: set[UUID] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Look whether a sweep is due, every 20 s, until `stopping` is set."""
        while not stopping.is_set():
            for sweep, once in (
                (Sweep.EXPIRE_UPLOADS, self.expire_uploads),
                (Sweep.RECONCILE_USAGE, self.reconcile_usage),
                (Sweep.ENQUEUE_PURGES, self.enqueue_purges),
                (Sweep.PRUNE_JOBS, self.prune_jobs),
                (Sweep.PRUNE_UPLOADS, self.prune_uploads),
            ):
                try:
                    await once()
                except DatabaseUnavailable:
                    self._log.warning("sweep put off", sweep=sweep.value)
                except DatabaseError as error:
                    # The due time was rolled back with the batch, so the next look tries again.
                    self._instruments.sweep_failures.add(1, {"sweep": sweep.value})
                    self._log.error("sweep failed", sweep=sweep.value, error=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_SECONDS)

    async def expire_uploads(self) -> int:
        """Expire every abandoned upload and delete its staging object, when that is due; the number expired.

        An upload that cannot be expired does not stop the others: the usage of all organizations is recounted, it is
        tried once more, and if it fails again it is reported and left out of the sweeps to come.
        """
        async with self._repository.beginning(Sweep.EXPIRE_UPLOADS) as work:
            if work is None:
                return 0
            batch = await work.expire_uploads(BATCH, list(self._isolated))
        total, suspects = 0, set[UUID]()
        while True:
            total += await self._clean_up(batch)
            failed = _failed(batch)
            self._isolate(failed & suspects)
            if fresh := failed - suspects:
                suspects |= fresh
                self._log.warning("uploads not expired, recounting usage first", uploads=[str(each) for each in fresh])
                await self._recount(Sweep.EXPIRE_UPLOADS)
            elif len(batch) < BATCH:
                break
            async with self._repository.continuing(Sweep.EXPIRE_UPLOADS) as work:
                if work is None:
                    break
                batch = await work.expire_uploads(BATCH, list(self._isolated))
        self._instruments.sweeps.add(1, {"sweep": Sweep.EXPIRE_UPLOADS.value})
        if total:
            self._log.info("uploads expired", count=total)
        return total

    async def reconcile_usage(self) -> bool:
        """Recount the usage of every organization, when that is due; whether it was."""
        async with self._repository.beginning(Sweep.RECONCILE_USAGE) as work:
            if work is None:
                return False
            last = await work.reconcile_usage(None, BATCH)
        if last is not None:
            await self._recount(Sweep.RECONCILE_USAGE, last)
        self._isolated.clear()
        self._instruments.sweeps.add(1, {"sweep": Sweep.RECONCILE_USAGE.value})
        self._log.info("usage recounted")
        return True

    async def enqueue_purges(self) -> int:
        """Queue the purge of every asset that is archived or failed for long enough, when that is due; how many."""
        return await self._in_batches(Sweep.ENQUEUE_PURGES, lambda work: work.enqueue_purges(BATCH))

    async def prune_jobs(self) -> int:
        """Delete the finished jobs that nothing reads any more, when that is due; how many."""
        return await self._in_batches(Sweep.PRUNE_JOBS, lambda work: work.prune_jobs(BATCH))

    async def prune_uploads(self) -> int:
        """Delete the settled uploads that nothing reads any more, when that is due; how many."""
        return await self._in_batches(Sweep.PRUNE_UPLOADS, lambda work: work.prune_uploads(BATCH))

    async def _in_batches(self, sweep: Sweep, step: Callable[[SweepWork], Awaitable[int]]) -> int:
        """Each batch in its own short transaction, until one is not full or another worker takes the lock."""
        async with self._repository.beginning(sweep) as work:
            if work is None:
                return 0
            done = await step(work)
        total = done
        while done == BATCH:
            async with self._repository.continuing(sweep) as work:
                if work is None:
                    break
                done = await step(work)
            total += done
        self._instruments.sweeps.add(1, {"sweep": sweep.value})
        self._instruments.swept.add(total, {"sweep": sweep.value})
        if total:
            self._log.info("swept", sweep=sweep.value, count=total)
        return total

    async def _recount(self, sweep: Sweep, last: UUID | None = None) -> None:
        while True:
            async with self._repository.continuing(sweep) as work:
                if work is None:
                    return
                last = await work.reconcile_usage(last, BATCH)
            if last is None:
                return

    def _isolate(self, uploads: set[UUID]) -> None:
        if not uploads:
            return
        self._isolated |= uploads
        self._instruments.sweep_failures.add(len(uploads), {"sweep": Sweep.EXPIRE_UPLOADS.value})
        self._log.error("uploads cannot be expired", uploads=[str(upload) for upload in uploads])

    async def _clean_up(self, batch: tuple[ExpiredUpload, ...]) -> int:
        staged = [expired.staging for expired in batch if expired.staging is not None]
        self._instruments.expired_uploads.add(len(staged))
        places = asyncio.Semaphore(_REMOVALS_AT_ONCE)

        async def remove(staging: StagingObject) -> None:
            async with places:
                await remove_staging(self._objects, staging)

        await asyncio.gather(*(remove(staging) for staging in staged))
        return len(staged)


def _failed(batch: tuple[ExpiredUpload, ...]) -> set[UUID]:
    return {expired.upload_id for expired in batch if expired.staging is None}
