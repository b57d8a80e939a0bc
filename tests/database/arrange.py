"""Steps that tests of the database share: each is one call of the functions under test, as a service makes it."""

import hashlib
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.support.database import Connection, Person

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
PROFILE_1 = ("p1-thumbnail", "p1-tile", "p1-card", "p1-detail")


def token() -> str:
    """A delivery or staging token: 26 characters of lowercase base32."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(26))


def minutes_ahead(minutes: float) -> datetime:
    return datetime.now(UTC) + timedelta(minutes=minutes)


@contextmanager
def refused(constraint: str, sqlstate: str = "23514") -> Iterator[None]:
    """The body is refused with exactly that SQLSTATE and constraint name: what services read."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        yield
    assert (caught.value.sqlstate, caught.value.constraint_name) == (sqlstate, constraint), str(caught.value)


@contextmanager
def denied() -> Iterator[None]:
    """The body lacks a privilege."""
    with pytest.raises(asyncpg.InsufficientPrivilegeError) as caught:
        yield
    assert "permission denied" in str(caught.value)


@asynccontextmanager
async def acting(
    connection: Connection, person: Person, permission: str = "assets.media.manage", capability: str | None = None
) -> AsyncIterator[Connection]:
    """A transaction with that person's tenant context open."""
    async with connection.transaction():
        outcome = await open_context(connection, person, permission, capability)
        assert outcome == "authorized"
        yield connection


async def open_context(
    connection: Connection,
    person: Person,
    permission: str = "assets.media.manage",
    capability: str | None = None,
    organization_id: UUID | None = None,
) -> str:
    row = await connection.fetchrow(
        "SELECT * FROM identity.open_tenant_context($1, $2, $3, $4, 'admission', 'request-1')",
        person.token_hash,
        organization_id or person.organization_id,
        permission,
        capability,
    )
    outcome: str = row["outcome"]
    return outcome


@dataclass(frozen=True)
class Intent:
    """The parameters of one reservation; every one that must be unique is."""

    asset_id: UUID
    variant_id: UUID
    upload_id: UUID
    delivery_token: str
    staging_token: str
    key: UUID
    media_type: str = "image/jpeg"
    byte_size: int = 1000
    access_class: str = "public"
    display_name: str | None = "Hamburguesa"
    original_filename: str | None = "IMG_0001.JPG"
    request_hash: str = "ab" * 32
    expires_at: datetime | None = None
    allowed: tuple[str, ...] = ("public",)

    def again(self, **changes: Any) -> "Intent":
        """Another attempt under the same key, as a retrying client's service makes it: with new ids."""
        return replace(intent(), **{"key": self.key, **changes})


def intent(**changes: Any) -> Intent:
    return replace(Intent(uuid4(), uuid4(), uuid4(), token(), token(), uuid4()), **changes)


async def reserve_in(connection: Connection, wanted: Intent) -> Any:
    """One reservation inside the caller's transaction."""
    return await connection.fetchrow(
        "SELECT * FROM assets.reserve_upload($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        wanted.asset_id,
        wanted.variant_id,
        wanted.upload_id,
        wanted.delivery_token,
        wanted.staging_token,
        wanted.media_type,
        wanted.byte_size,
        wanted.access_class,
        wanted.display_name,
        wanted.original_filename,
        wanted.key,
        wanted.request_hash,
        wanted.expires_at or minutes_ahead(15),
        list(wanted.allowed),
    )


async def reserve(connection: Connection, person: Person, wanted: Intent | None = None) -> Any:
    async with acting(connection, person):
        return await reserve_in(connection, wanted or intent())


async def complete(connection: Connection, person: Person, upload_id: UUID, trace: str | None = None) -> Any:
    async with acting(connection, person):
        return await connection.fetchrow("SELECT * FROM assets.complete_upload($1, $2)", upload_id, trace)


async def queue_upload(connection: Connection, person: Person, wanted: Intent | None = None) -> Any:
    """Reserved and completed: an upload whose job waits."""
    reserved = await reserve(connection, person, wanted)
    completed = await complete(connection, person, reserved["upload_id"])
    assert completed["outcome"] == "completed"
    return reserved


async def usage(owner: Connection, person: Person) -> tuple[int, int, int]:
    """(active assets, stored bytes, reserved bytes)."""
    row = await owner.fetchrow(
        "SELECT active_asset_count, stored_bytes, reserved_bytes FROM assets.organization_usage"
        " WHERE organization_id = $1",
        person.organization_id,
    )
    return tuple(row.values())


async def claim(
    worker: Connection,
    kinds: tuple[str, ...] = ("process_upload",),
    lease_token: UUID | None = None,
    seconds: int = 120,
    name: str = "worker-1",
) -> Any:
    """One claim; None when there was nothing. The lease token is `lease_token` of the answer's dict."""
    held = lease_token or uuid4()
    row = await worker.fetchrow(
        "SELECT * FROM assets.claim_processing_job($1, $2, $3, $4)", name, held, seconds, list(kinds)
    )
    return None if row is None else {**row, "lease_token": held}


_RECORD = "SELECT assets.record_processing_outcome($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"


async def record(
    worker: Connection, job: Any, outcome: str, error_code: str | None = None, minutes: float | None = None
) -> str:
    """Any outcome but `ready`; `minutes` ahead for a retry."""
    available_at = None if minutes is None else minutes_ahead(minutes)
    answer: str = await worker.fetchval(
        _RECORD, job["job_id"], job["lease_token"], outcome, error_code, available_at, *([None] * 10)
    )
    return answer


@dataclass(frozen=True)
class Stored:
    """One variant of a `ready` outcome."""

    code: str
    variant_id: UUID
    object_key: str
    provider: str
    byte_size: int = 100
    media_type: str = "image/webp"
    checksum: bytes = hashlib.sha256(b"bytes").digest()
    width: int = 640
    height: int = 480


def stored_variants(job: Any) -> list[Stored]:
    """What a worker stored for the job: the master of 100 bytes and four renditions of 100."""
    delivered = job["delivery_token"]
    return [
        Stored("original", job["original_variant_id"], f"m/{delivered}/original.webp", "s3-private"),
        *(
            Stored(code, uuid4(), f"a/{delivered}/p1/{code.removeprefix('p1-')}.webp", "r2-public")
            for code in PROFILE_1
        ),
    ]


async def record_ready(worker: Connection, job: Any, variants: list[Stored] | None = None) -> str:
    stored = stored_variants(job) if variants is None else variants
    answer: str = await worker.fetchval(
        _RECORD,
        job["job_id"],
        job["lease_token"],
        "ready",
        None,
        None,
        [each.code for each in stored],
        [each.media_type for each in stored],
        [each.byte_size for each in stored],
        [each.checksum for each in stored],
        [each.width for each in stored],
        [each.height for each in stored],
        [each.variant_id for each in stored],
        [uuid4() for _ in stored],
        [each.provider for each in stored],
        [each.object_key for each in stored],
    )
    return answer


async def ready_asset(admission: Connection, worker: Connection, person: Person) -> UUID:
    """An asset that went the whole way."""
    reserved = await queue_upload(admission, person)
    assert await record_ready(worker, await claim(worker)) == "completed"
    asset_id: UUID = reserved["asset_id"]
    return asset_id


async def lapse_lease(owner: Connection, job: Any) -> None:
    """The job's lease ends now: its worker died or hung."""
    await owner.execute(
        "UPDATE assets.processing_jobs SET lease_expires_at = now() - interval '1 second' WHERE id = $1", job["job_id"]
    )


async def make_due(owner: Connection) -> None:
    """Every delayed retry is due now."""
    await owner.execute("UPDATE assets.processing_jobs SET available_at = now() WHERE state = 'pending'")


async def job_row(owner: Connection, job: Any) -> Any:
    return await owner.fetchrow("SELECT * FROM assets.processing_jobs WHERE id = $1", job["job_id"])
