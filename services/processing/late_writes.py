"""What a worker does about objects that it wrote and that nobody wants any more: its lease was lost meanwhile."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from libs.database.errors import DatabaseError, DatabaseUnavailable
from libs.storage.errors import StorageError
from services.processing.cdn import CdnFailed
from services.processing.domain import ClaimedJob, LeaseStanding
from services.processing.erasure import Eraser
from services.processing.instruments import Instruments

_ATTEMPTS: Final = 6
_PAUSE_SECONDS: Final = 0.5


class Standings(Protocol):
    """What the database says about an attempt."""

    async def lease_standing(self, job: ClaimedJob) -> LeaseStanding:
        """Whether what the attempt wrote is anybody's."""
        ...


@dataclass(frozen=True, slots=True)
class LateWrites:
    """Takes back what an attempt wrote, when no asset is left that could own it.

    Call it once the attempt's writes have ended. An asset that lives, or that may be requeued, keeps its objects: they
    have the same keys as those of the attempt that takes over. One that was purged, or has failed for good, never comes
    back, and its token is never used again: what lies under it may be removed at any time, by anyone.
    """

    standings: Standings
    eraser: Eraser
    instruments: Instruments

    async def take_back(self, job: ClaimedJob) -> None:
        """Remove the objects and purge the URLs of the job's asset, if they are unwanted; six tries within 16 s.

        Never raises: what is left behind is counted and logged, and `ninaku storage reconcile` finds it.
        """
        if job.delivery_token is None or job.rendition_profile is None:
            return
        log: Any = structlog.stdlib.get_logger("ninaku.processing")
        for attempt in range(_ATTEMPTS):
            try:
                if await self.standings.lease_standing(job) is not LeaseStanding.UNWANTED:
                    return
                await self.eraser.remove(job.delivery_token, job.rendition_profile)
                await self.eraser.forget(job.delivery_token, job.rendition_profile)
            except (DatabaseUnavailable, DatabaseError, StorageError, CdnFailed, KeyError) as error:
                log.warning("unwanted objects not taken back yet", error=str(error))
                if attempt + 1 < _ATTEMPTS:
                    await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
            else:
                self.instruments.leftovers.add(1, {"gone": "yes"})
                log.warning("unwanted objects taken back")
                return
        self.instruments.leftovers.add(1, {"gone": "no"})
        log.error("unwanted objects left behind")
