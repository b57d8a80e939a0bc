"""The handler of `purge_asset`: objects, then the CDN, then the rows (§16)."""

from dataclasses import dataclass
from typing import Protocol

from services.processing.deadlines import storage_until
from services.processing.domain import ClaimedJob, PurgeStep, Settled
from services.processing.erasure import Eraser


class PurgeRepository(Protocol):
    """The two ends of a purge; each raises LeaseLost when the job is no longer ours."""

    async def begin_purge(self, job: ClaimedJob) -> PurgeStep:
        """Mark the asset `purging`, or learn that something still uses it."""
        ...

    async def finish_purge(self, job: ClaimedJob) -> str:
        """Delete the asset's rows, the job's own among them."""
        ...


@dataclass(frozen=True, slots=True)
class PurgeAsset:
    """Purges one asset. Every step may be repeated: a purge that was cut off starts again from its first."""

    repository: PurgeRepository
    eraser: Eraser

    async def handle(self, job: ClaimedJob, deadline: float) -> Settled:
        """Return how the purge ended; rows go last, and only once nothing is left that they could lead to.

        Raises StorageUnavailable, StorageRefused, CdnUnavailable, CdnRefused or StorageDeadlinePassed: then the asset
        stays `purging` and the job is tried again.
        """
        step = await self.repository.begin_purge(job)
        if step.outcome != "deletable":
            return Settled(step.outcome)
        if step.delivery_token is None or step.rendition_profile is None:
            raise ValueError("a deletable asset has a token and a profile")
        async with storage_until(deadline):
            await self.eraser.remove(step.delivery_token, step.rendition_profile, step.objects)
            await self.eraser.forget(step.delivery_token, step.rendition_profile)
        return Settled(await self.repository.finish_purge(job))
