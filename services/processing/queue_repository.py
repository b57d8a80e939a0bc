"""The reads of the queue: one statement each, under the login of the processing service."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from services.processing.domain import JobKind
from services.processing.queue import DeadLetter, DeadLetterPage, PagePlace, QueueDepth, QueueState

_STATE: Final = "SELECT * FROM assets.queue_state()"
_DEAD_LETTERS: Final = "SELECT * FROM assets.list_dead_letters($1, $2, $3, $4)"


class Reads(Protocol):
    """Runs a statement that changes nothing: the service's pool, or one connection of an operator."""

    async def read_rows(self, statement: str, *arguments: Any) -> Sequence[Any]:
        """All rows."""
        ...


class QueueRepository:
    """Reads only; every method may raise DatabaseUnavailable.

    Args:
        database: The login.
    """

    def __init__(self, database: Reads) -> None:
        """Keep it."""
        self._database = database

    async def queue_state(self) -> QueueState:
        """Count the queue."""
        rows = await self._database.read_rows(_STATE)
        return QueueState(depths=tuple(_depth(row) for row in rows), counted_at=rows[0]["counted_at"])

    async def dead_letters(self, kind: JobKind | None, after: PagePlace | None, size: int) -> DeadLetterPage:
        """Read one page of dead letters, newest first; `kind` None means every kind."""
        rows = await self._database.read_rows(
            _DEAD_LETTERS,
            None if kind is None else kind.value,
            None if after is None else after.dead_lettered_at,
            None if after is None else after.job_id,
            size + 1,  # one more tells whether a page follows
        )
        letters = tuple(_dead_letter(row) for row in rows[:size])
        following = PagePlace(letters[-1].dead_lettered_at, letters[-1].job_id) if len(rows) > size else None
        return DeadLetterPage(letters, following)


def _depth(row: Any) -> QueueDepth:
    oldest = row["oldest_ready_at"]
    return QueueDepth(
        kind=JobKind(row["job_kind"]),
        ready=row["ready"],
        delayed=row["delayed"],
        leased=row["leased"],
        lease_expired=row["lease_expired"],
        oldest_ready_age=None if oldest is None else row["counted_at"] - oldest,
        dead_letters=dict(zip(row["dead_letter_codes"], row["dead_letter_counts"], strict=True)),
    )


def _dead_letter(row: Any) -> DeadLetter:
    return DeadLetter(
        job_id=row["job_id"],
        organization_id=row["organization_id"],
        asset_id=row["asset_id"],
        kind=JobKind(row["job_kind"]),
        error_code=row["error_code"],
        attempt_count=row["attempt_count"],
        processing_error_count=row["processing_error_count"],
        created_at=row["created_at"],
        dead_lettered_at=row["dead_lettered_at"],
        requeue_refusal=row["requeue_refusal"],
    )
