"""The queue as people and services see it: what waits, what runs, what was given up. No I/O, no gRPC, no SQL."""

import base64
import binascii
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from libs.errors.refusal import FieldViolation, invalid
from services.processing.domain import JobKind

DEFAULT_PAGE: Final = 50
LARGEST_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """One kind's part of the queue, in jobs."""

    kind: JobKind
    ready: int
    delayed: int
    leased: int
    lease_expired: int
    oldest_ready_age: timedelta | None
    """How long the oldest claimable job has waited; None when none waits."""
    dead_letters: Mapping[str, int]
    """Jobs that were given up, by last error code."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """The whole queue, counted at one moment of the database's clock; every kind is there."""

    depths: tuple[QueueDepth, ...]
    counted_at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that was given up."""

    job_id: uuid.UUID
    organization_id: uuid.UUID
    asset_id: uuid.UUID
    kind: JobKind
    error_code: str
    attempt_count: int
    processing_error_count: int
    created_at: datetime
    dead_lettered_at: datetime
    requeue_refusal: str | None
    """Why a requeue would be refused (`too_old`, `archived`, `state`); None when it would be tried."""


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Behind which dead letter a page begins; newest come first."""

    dead_lettered_at: datetime
    job_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """One page, and where the next one begins; None on the last."""

    dead_letters: tuple[DeadLetter, ...]
    next_place: PagePlace | None


def page_size_of(asked: int) -> int:
    """Return the size of a page: 1 to 500, or 50 when 0 was asked for.

    Raises:
        Refusal: ``foundation.validation_failed`` for any other.
    """
    if not 0 <= asked <= LARGEST_PAGE:
        raise invalid(FieldViolation("page_size", f"Must be 1 to {LARGEST_PAGE}, or 0 for {DEFAULT_PAGE}."))
    return asked or DEFAULT_PAGE


def token_of(place: PagePlace | None) -> str:
    """Return the page token of a place; empty for none."""
    if place is None:
        return ""
    text = f"{place.dead_lettered_at.isoformat()} {place.job_id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(token: str) -> PagePlace | None:
    """Return the place that a page token means; None for an empty one.

    Raises:
        Refusal: ``foundation.validation_failed`` for anything that is no token of ours.
    """
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        moment, job_id = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
        place = PagePlace(datetime.fromisoformat(moment), uuid.UUID(job_id))
    except (ValueError, binascii.Error):
        place = None
    if place is None or place.dead_lettered_at.tzinfo is None or token_of(place) != token:
        raise invalid(FieldViolation("page_token", "Must be the next_page_token of the page before."))
    return place
