"""What operators do to the queue and to assets: one method per SQL function, refusals in words."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from services.cli.administration import refusals
from services.cli.local.state import StateFolder
from services.cli.operators import connect, database_access
from services.processing.domain import JobKind
from services.processing.queue import DeadLetter, QueueState
from services.processing.queue_repository import QueueRepository

_LARGEST_BATCH = 500


class Requeue(StrEnum):
    """What became of a dead letter that was to be requeued."""

    REQUEUED = "requeued"
    OVER_LIMIT = "skipped_over_limit"
    INELIGIBLE = "skipped_ineligible"


@dataclass(frozen=True)
class RequeueResult:
    """One job's; `reason` is None for one that was requeued."""

    job_id: UUID
    outcome: Requeue
    reason: str | None


class Erasure(StrEnum):
    """What became of a wish to erase an asset."""

    QUEUED = "queued"
    ALREADY_PURGED = "already_purged"
    REFERENCED = "referenced"
    NOT_FOUND = "not_found"


@dataclass(frozen=True)
class ErasureResult:
    """`claims` are (consumer, reference): those that hold the asset, or with QUEUED those that were detached."""

    outcome: Erasure
    job_id: UUID | None
    claims: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PurgeReceipt:
    """What a purge removed: `objects` are (provider, key), `rows` counts by table."""

    asset_id: UUID
    organization_id: UUID
    delivery_token: str
    is_public: bool
    rendition_profile: int
    objects: tuple[tuple[str, str], ...]
    staging_key: str | None
    stored_bytes: int
    rows: Mapping[str, int]
    purged_at: datetime
    audit_records: int


class QueueOperations:
    """The operator's functions of the queue over one asyncpg connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._repository = QueueRepository(self)

    async def read_rows(self, statement: str, *arguments: Any) -> Sequence[Any]:
        """All rows of a statement, refusals in words."""
        with refusals():
            rows: Sequence[Any] = await self._connection.fetch(statement, *arguments)
            return rows

    async def state(self) -> QueueState:
        """The queue now."""
        return await self._repository.queue_state()

    async def dead_letters(self, kind: JobKind | None, limit: int) -> list[DeadLetter]:
        """The newest dead letters, at most `limit`."""
        found: list[DeadLetter] = []
        place = None
        while len(found) < limit:
            page = await self._repository.dead_letters(kind, place, min(_LARGEST_BATCH, limit - len(found)))
            found.extend(page.dead_letters)
            place = page.next_place
            if place is None:
                break
        return found

    async def requeue(self, job_ids: Sequence[UUID]) -> list[RequeueResult]:
        """Gives dead letters another go, 500 in one transaction, in the order given."""
        results: list[RequeueResult] = []
        for first in range(0, len(job_ids), _LARGEST_BATCH):
            batch = list(job_ids[first : first + _LARGEST_BATCH])
            rows = await self.read_rows("SELECT * FROM assets.requeue_dead_letters($1)", batch)
            results.extend(RequeueResult(row["job_id"], Requeue(row["outcome"]), row["reason"]) for row in rows)
        return results

    async def erase(self, asset_id: UUID, detach: bool) -> ErasureResult:
        """Queues the purge of an asset before all others, or says what stands in the way. Safe to repeat."""
        row = (await self.read_rows("SELECT * FROM assets.erase_asset($1, $2)", asset_id, detach))[0]
        claims = tuple(zip(row["claim_consumers"], row["claim_references"], strict=True))
        return ErasureResult(Erasure(row["outcome"]), row["job_id"], claims)

    async def receipt(self, asset_id: UUID) -> PurgeReceipt | None:
        """What a finished purge removed; None while there is none."""
        rows = await self.read_rows("SELECT * FROM assets.read_purge_receipt($1)", asset_id)
        if not rows:
            return None
        row = rows[0]
        return PurgeReceipt(
            asset_id=row["asset_id"],
            organization_id=row["organization_id"],
            delivery_token=row["delivery_token"],
            is_public=row["access_class"] == "public",
            rendition_profile=row["rendition_profile"],
            objects=tuple(zip(row["provider_codes"], row["object_keys"], strict=True)),
            staging_key=row["staging_key"],
            stored_bytes=row["stored_bytes"],
            rows=json.loads(row["removed_rows"]),
            purged_at=row["purged_at"],
            audit_records=row["audit_records"],
        )


@asynccontextmanager
async def queue_operations(state: StateFolder) -> AsyncIterator[QueueOperations]:
    """The operator's functions on the database of DATABASE_URL or of the local stack."""
    async with database_access(state) as access:
        connection = await connect(access.operator_dsn)
        try:
            yield QueueOperations(connection)
        finally:
            await connection.close()
