"""Expiring uploads, reconciling usage, and who may sweep when (stage A1c-2 and the requirements of A3a)."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.database.arrange import (
    acting,
    claim,
    intent,
    queue_upload,
    ready_asset,
    record,
    refused,
    reserve,
    usage,
)
from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization


async def expire(worker: Connection, batch: int = 500, skip: list[UUID] | None = None) -> list[tuple[Any, ...]]:
    rows = await worker.fetch("SELECT * FROM assets.expire_uploads($1, $2)", batch, skip)
    return [tuple(row.values()) for row in rows]


async def overdue(owner: Connection, upload_id: UUID, minutes: int = 1) -> None:
    await owner.execute(
        "UPDATE assets.uploads SET created_at = now() - interval '1 day',"
        " expires_at = now() - make_interval(mins => $2) WHERE id = $1",
        upload_id,
        minutes,
    )


@pytest.mark.case("A1c.10")
async def test_expires_only_issued_uploads_past_their_expiry_and_releases_their_reservations(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    late = await reserve(admission, ana, intent(byte_size=5000))
    fresh = await reserve(admission, ana, intent(byte_size=70))
    received = await queue_upload(admission, ana, intent(byte_size=600))
    foreign = await reserve(admission, bruno, intent(byte_size=8))
    for upload in (late, received, foreign):
        await overdue(owner, upload["upload_id"])
    assert await usage(owner, ana) == (3, 0, 5670)

    assert set(await expire(worker)) == {
        (upload["upload_id"], "s3-private", upload["staging_object_key"]) for upload in (late, foreign)
    }
    assert await usage(owner, ana) == (2, 0, 670)
    assert await usage(owner, bruno) == (0, 0, 0)
    expired = await owner.fetchrow(
        """SELECT u.state, u.settled_at IS NOT NULL, u.rejection_code, a.status, a.failure_code, v.status,
            v.failure_code, v.failed_at IS NOT NULL
        FROM assets.uploads u JOIN assets.assets a ON a.id = u.asset_id
        JOIN assets.asset_variants v ON v.asset_id = a.id WHERE u.id = $1""",
        late["upload_id"],
    )
    code = "assets.upload_expired"
    assert tuple(expired.values()) == ("expired", True, None, "failed", code, "failed", code, True)
    states = await owner.fetch("SELECT id, state FROM assets.uploads")
    assert {row["id"]: row["state"] for row in states} == {
        late["upload_id"]: "expired",
        foreign["upload_id"]: "expired",
        fresh["upload_id"]: "issued",
        received["upload_id"]: "received",
    }
    assert await expire(worker) == []
    assert await usage(owner, ana) == (2, 0, 670)


@pytest.mark.case("A1c.10")
async def test_expires_the_oldest_first_in_batches_and_frees_no_slot_of_an_archived_asset(
    owner: Connection, admission: Connection, library: Connection, worker: Connection, ana: Person
) -> None:
    uploads = [await reserve(admission, ana) for _ in range(3)]
    for minutes, upload in enumerate(uploads, start=1):
        await overdue(owner, upload["upload_id"], minutes)
    await owner.execute("UPDATE assets.assets SET created_at = now() - interval '1 day'")
    async with acting(library, ana):
        await library.fetchval("SELECT assets.archive_asset($1)", uploads[2]["asset_id"])
    assert await usage(owner, ana) == (2, 0, 3000)
    assert [row[0] for row in await expire(worker, batch=1)] == [uploads[2]["upload_id"]]
    assert await usage(owner, ana) == (2, 0, 2000)
    assert {row[0] for row in await expire(worker, batch=2)} == {each["upload_id"] for each in uploads[:2]}
    assert await usage(owner, ana) == (0, 0, 0)


@pytest.mark.case("A1c.10")
async def test_a_completion_that_comes_first_keeps_its_upload(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    upload = await reserve(admission, ana)
    await overdue(owner, upload["upload_id"])
    async with owner.transaction():
        await owner.execute("SELECT FROM assets.uploads FOR UPDATE")
        assert await expire(worker) == []  # somebody works on it: never waits for an upload


@pytest.mark.case("A1c.10")
async def test_an_upload_that_cannot_be_expired_stands_aside_and_is_left_out_when_told(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    bad = await reserve(admission, ana)
    good = await reserve(admission, bruno)
    await overdue(owner, bad["upload_id"], 2)
    await overdue(owner, good["upload_id"], 1)
    await owner.execute(
        "UPDATE assets.organization_usage SET reserved_bytes = 500 WHERE organization_id = $1", ana.organization_id
    )  # it drifted: releasing 1,000 would take it below zero
    assert set(await expire(worker)) == {
        (bad["upload_id"], None, None),
        (good["upload_id"], "s3-private", good["staging_object_key"]),
    }
    assert await usage(owner, ana) == (1, 0, 500)
    assert await expire(worker, batch=1, skip=[bad["upload_id"]]) == []
    await worker.fetchval("SELECT assets.reconcile_usage_batch(NULL, 500)")
    assert await expire(worker) == [(bad["upload_id"], "s3-private", bad["staging_object_key"])]
    assert await usage(owner, ana) == (0, 0, 0)


@pytest.mark.parametrize("batch", [0, 501, None])
async def test_refuses_a_batch_outside_1_to_500(worker: Connection, batch: int | None) -> None:
    with refused("assets_sweep_batch"):
        await expire(worker, batch)  # type: ignore[arg-type]
    with refused("assets_sweep_batch"):
        await worker.fetchval("SELECT assets.reconcile_usage_batch(NULL, $1)", batch)


@pytest.mark.case("A1c.11")
async def test_reconciles_an_organizations_usage_counters_from_its_rows(
    owner: Connection, admission: Connection, library: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    ready = [await ready_asset(admission, worker, ana) for _ in range(2)]
    async with acting(library, ana):
        await library.fetchval("SELECT assets.archive_asset($1)", ready[1])
    await queue_upload(admission, ana, intent(byte_size=600))
    await record(worker, await claim(worker), "failed_permanent", "assets.image_corrupt")
    await queue_upload(admission, ana, intent(byte_size=5000))
    await reserve(admission, ana, intent(byte_size=70))
    await ready_asset_missing(owner, ready[0])
    right = (3, 1000 - 100, 5070)  # ready, processing, pending; both assets' variants but the one that is missing
    await owner.execute(
        "UPDATE assets.organization_usage SET active_asset_count = 77, stored_bytes = 7, reserved_bytes = 7"
    )
    last = await worker.fetchval("SELECT assets.reconcile_usage_batch(NULL, 500)")
    assert last == max(ana.organization_id, bruno.organization_id)
    assert await usage(owner, ana) == right
    assert await usage(owner, bruno) == (0, 0, 0)
    assert await worker.fetchval("SELECT assets.reconcile_usage_batch($1, 500)", last) is None


async def ready_asset_missing(owner: Connection, asset_id: UUID) -> None:
    """One rendition's object was found missing: it is stored nowhere."""
    await owner.execute(
        "UPDATE assets.storage_objects SET status = 'missing' WHERE variant_id ="
        " (SELECT id FROM assets.asset_variants WHERE asset_id = $1 AND variant_code = 'p1-tile')",
        asset_id,
    )


@pytest.mark.case("A1c.11")
async def test_walks_all_organizations_in_batches(owner: Connection, worker: Connection) -> None:
    organizations = sorted([await add_organization(owner, f"organization {number}") for number in range(5)])
    await owner.execute("UPDATE assets.organization_usage SET stored_bytes = 1")
    walked, after = [], None
    while (after := await worker.fetchval("SELECT assets.reconcile_usage_batch($1, 2)", after)) is not None:
        walked.append(after)
    assert walked == [organizations[1], organizations[3], organizations[4]]
    assert await owner.fetchval("SELECT sum(stored_bytes) FROM assets.organization_usage") == 0


async def begin(connection: Connection, sweep: str = "expire_uploads") -> bool:
    answer: bool = await connection.fetchval("SELECT assets.begin_sweep($1)", sweep)
    return answer


async def test_a_sweep_runs_once_per_period_for_the_fleet(
    database: DatabaseUnderTest, owner: Connection, worker: Connection
) -> None:
    other = await database.login("ninaku_processing_worker")
    async with worker.transaction():
        assert await begin(worker)
        assert not await begin(other)  # it runs elsewhere
    assert not await begin(other)  # it ran
    await owner.execute("UPDATE assets.sweeps SET next_due_at = now() - interval '1 hour'")
    assert await begin(other)
    due = await owner.fetchval("SELECT next_due_at - begun_at FROM assets.sweeps WHERE sweep_code = 'expire_uploads'")
    assert due == timedelta(minutes=5)


async def test_a_sweep_that_failed_is_due_again(worker: Connection) -> None:
    transaction = worker.transaction()
    await transaction.start()
    assert await begin(worker)
    await transaction.rollback()
    assert await begin(worker)


async def test_the_expiry_sweep_and_the_reconciliation_never_run_at_the_same_time(
    database: DatabaseUnderTest, owner: Connection, worker: Connection
) -> None:
    other = await database.login("ninaku_processing_worker")
    await owner.execute("UPDATE assets.sweeps SET next_due_at = now()")
    async with worker.transaction():
        assert await begin(worker, "expire_uploads")
        assert not await begin(other, "reconcile_usage")
        assert not await other.fetchval("SELECT assets.continue_sweep('reconcile_usage')")
    async with other.transaction():
        assert await begin(other, "reconcile_usage")
        assert not await worker.fetchval("SELECT assets.continue_sweep('expire_uploads')")
    assert await worker.fetchval("SELECT assets.continue_sweep('reconcile_usage')")
    for call in ("begin_sweep", "continue_sweep"):
        with refused("assets_sweep_unknown"):
            await worker.fetchval(f"SELECT assets.{call}('nothing')")


async def test_the_reconciliation_is_due_every_day_at_three_in_the_morning_utc(
    owner: Connection, worker: Connection
) -> None:
    async def due() -> datetime:
        answer: datetime = await owner.fetchval(
            "SELECT next_due_at FROM assets.sweeps WHERE sweep_code = 'reconcile_usage'"
        )
        return answer.astimezone(UTC)

    now = datetime.now(UTC)
    for _ in range(2):  # as seeded, and as set by a sweep that ran whenever it ran
        assert (await due()).strftime("%H:%M:%S") == "03:00:00"
        assert now < await due() <= now + timedelta(hours=27)
        await owner.execute("UPDATE assets.sweeps SET next_due_at = now()")
        assert await begin(worker, "reconcile_usage")
    assert now < await due() <= now + timedelta(hours=24, seconds=60)
