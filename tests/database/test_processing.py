"""Claiming jobs and recording outcomes, under the worker's login (stage A1c, in the final form of A3c-1)."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.database.arrange import (
    PROFILE_1,
    acting,
    claim,
    denied,
    intent,
    job_row,
    lapse_lease,
    make_due,
    minutes_ahead,
    queue_upload,
    ready_asset,
    record,
    record_ready,
    refused,
    reserve,
    stored_variants,
    usage,
)
from tests.database.test_asset_lifecycle import insert_asset
from tests.database.test_upload_tables import insert_job
from tests.support.database import Connection, DatabaseUnderTest, Person


async def statuses(owner: Connection, asset_id: UUID) -> tuple[Any, ...]:
    """(asset, original, upload) and their codes, as the failure or success left them."""
    row = await owner.fetchrow(
        """SELECT a.status, a.failure_code, v.status AS original, v.failure_code AS original_code,
            u.state, u.rejection_code
        FROM assets.assets a JOIN assets.uploads u ON u.asset_id = a.id
        JOIN assets.asset_variants v ON v.asset_id = a.id AND v.variant_code = 'original' WHERE a.id = $1""",
        asset_id,
    )
    return tuple(row.values())


def failed_with(code: str) -> tuple[str, ...]:
    return ("failed", code, "failed", code, "rejected", code)


async def retry(owner: Connection, worker: Connection, outcome: str, code: str) -> tuple[str, Any]:
    """Claims the one job there is, records a retry, makes it due again; returns the answer and the job's row."""
    job = await claim(worker)
    assert job is not None
    answer = await record(worker, job, outcome, code, minutes=1)
    await make_due(owner)
    return answer, await job_row(owner, job)


@pytest.mark.case("A1c.01")
async def test_claims_at_most_one_job_of_the_requested_kinds_and_never_one_under_a_live_lease(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    first = await queue_upload(admission, ana, intent(media_type="image/avif", byte_size=4321))
    second = await queue_upload(admission, ana)
    purged = await insert_asset(owner, ana.organization_id, "failed")
    await insert_job(owner, ana.organization_id, purged, job_kind="'purge_asset'")

    assert await claim(worker, kinds=()) is None
    assert await claim(worker, kinds=("render_profile",)) is None
    job = await claim(worker)
    asset = await owner.fetchrow("SELECT * FROM assets.assets WHERE id = $1", first["asset_id"])
    upload = await owner.fetchrow("SELECT * FROM assets.uploads WHERE id = $1", first["upload_id"])
    original = await owner.fetchval("SELECT id FROM assets.asset_variants WHERE asset_id = $1", first["asset_id"])
    assert {name: value for name, value in job.items() if name not in ("job_id", "lease_token")} == {
        "organization_id": ana.organization_id,
        "asset_id": first["asset_id"],
        "job_kind": "process_upload",
        "attempt_count": 0,
        "delivery_token": asset["delivery_token"],
        "access_class": "public",
        "rendition_profile": 1,
        "upload_id": first["upload_id"],
        "staging_provider_code": "s3-private",
        "staging_object_key": upload["staging_object_key"],
        "declared_media_type": "image/avif",
        "declared_byte_size": 4321,
        "original_variant_id": original,
        "upload_expires_at": upload["expires_at"],
        "processing_error_count": 0,
        "claim_state": "leased",
        "trace_context": None,
    }
    leased = await job_row(owner, job)
    assert (leased["state"], leased["lease_owner"], leased["lease_token"]) == ("leased", "worker-1", job["lease_token"])
    assert await owner.fetchval("SELECT $1 - now()", leased["lease_expires_at"]) <= await owner.fetchval(
        "SELECT interval '120 seconds'"
    )
    assert await owner.fetchval("SELECT count(*) FROM assets.processing_jobs WHERE state = 'leased'") == 1

    assert (await claim(worker))["asset_id"] == second["asset_id"]
    assert await claim(worker) is None  # both uploads are held, and a purge was not asked for
    assert (await claim(worker, kinds=("process_upload", "purge_asset")))["asset_id"] == purged
    assert await claim(worker, kinds=("process_upload", "purge_asset")) is None


@pytest.mark.case("A1c.01")
async def test_never_claims_a_job_before_it_is_available(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await queue_upload(admission, ana)
    job = await claim(worker)
    await record(worker, job, "retry_storage", "assets.storage_unavailable", minutes=10)
    assert await claim(worker) is None
    assert await worker.fetchval("SELECT assets.next_job_at('{process_upload}')") > minutes_ahead(9)
    await make_due(owner)
    assert (await claim(worker))["job_id"] == job["job_id"]


@pytest.mark.parametrize(("seconds", "accepted"), [(29, False), (30, True), (900, True), (901, False)])
async def test_a_lease_lasts_30_to_900_seconds(
    admission: Connection, worker: Connection, ana: Person, seconds: int, accepted: bool
) -> None:
    await queue_upload(admission, ana)
    if accepted:
        assert await claim(worker, seconds=seconds) is not None
    else:
        with refused("assets_job_lease_seconds"):
            await claim(worker, seconds=seconds)


@pytest.mark.case("A1c.02")
async def test_refuses_recording_an_outcome_with_a_lease_that_expired_or_was_reclaimed(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    reserved = await queue_upload(admission, ana)
    job = await claim(worker)

    async def refuses_every_outcome(held: Any) -> None:
        before = await job_row(owner, job), await statuses(owner, reserved["asset_id"]), await usage(owner, ana)
        with refused("assets_job_lease_lost"):
            await record_ready(worker, held)
        with refused("assets_job_lease_lost"):
            await record(worker, held, "failed_permanent", "assets.image_corrupt")
        for outcome in ("retry_storage", "retry_processing"):
            with refused("assets_job_lease_lost"):
                await record(worker, held, outcome, "assets.processing_error", minutes=1)
        assert (
            await worker.fetchval("SELECT assets.release_processing_job($1, $2)", held["job_id"], held["lease_token"])
            == "lease_lost"
        )
        after = await job_row(owner, job), await statuses(owner, reserved["asset_id"]), await usage(owner, ana)
        assert after == before

    await refuses_every_outcome({**job, "lease_token": uuid4()})
    await refuses_every_outcome({**job, "job_id": uuid4()})
    await lapse_lease(owner, job)
    await refuses_every_outcome(job)
    again = await claim(worker, name="worker-2")
    assert again["job_id"] == job["job_id"]
    await refuses_every_outcome(job)
    assert await record_ready(worker, again) == "completed"
    await refuses_every_outcome(again)  # and what was recorded is not recorded again


@pytest.mark.case("A1c.03")
async def test_records_a_ready_outcome_and_moves_reserved_bytes_to_stored_bytes(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    reserved = await queue_upload(admission, ana, intent(byte_size=5000))
    other = await reserve(admission, ana, intent(byte_size=70))
    job = await claim(worker)
    assert await usage(owner, ana) == (2, 0, 5070)
    variants = [replace(each, byte_size=100 + place) for place, each in enumerate(stored_variants(job))]
    assert await record_ready(worker, job, variants) == "completed"
    assert await usage(owner, ana) == (2, 510, 70)
    assert await statuses(owner, reserved["asset_id"]) == ("ready", None, "ready", None, "verified", None)
    row = await job_row(owner, job)
    assert (row["state"], row["lease_token"], row["attempt_count"]) == ("completed", None, 0)
    assert row["completed_at"] is not None
    stored = await owner.fetch(
        """SELECT v.id, v.variant_code, v.status, v.media_type, v.byte_size, v.checksum_sha256, v.width, v.height,
            p.code, o.object_key, o.status AS object_status, o.is_primary, o.available_at, o.verified_at, v.ready_at
        FROM assets.asset_variants v JOIN assets.storage_objects o ON o.variant_id = v.id
        JOIN assets.storage_providers p ON p.id = o.provider_id WHERE v.asset_id = $1""",
        reserved["asset_id"],
    )
    assert {tuple(row.values())[:12] for row in stored} == {
        (each.variant_id, each.code, "ready", each.media_type, each.byte_size, each.checksum, each.width, each.height,
         each.provider, each.object_key, "available", True)
        for each in variants
    }  # fmt: skip
    assert all(row["available_at"] == row["verified_at"] == row["ready_at"] for row in stored)
    assert (await statuses(owner, other["asset_id"]))[0] == "pending"


@pytest.mark.case("A1c.03")
async def test_refuses_a_ready_outcome_that_is_not_the_original_and_every_rendition_complete(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await ready_asset(admission, worker, ana)
    existing = await owner.fetchval("SELECT id FROM assets.asset_variants WHERE variant_code = 'p1-card'")
    reserved = await queue_upload(admission, ana)
    job = await claim(worker)
    good = stored_variants(job)
    wrong: list[list[Any]] = [
        [],
        good[1:],
        *([each for each in good if each.code != code] for code in PROFILE_1),
        [*good, replace(good[1], code="p1-extra", variant_id=uuid4(), object_key="a/extra.webp")],
        [*good[:4], replace(good[4], code="p1-card")],
        [replace(good[0], variant_id=uuid4()), *good[1:]],
        [replace(good[0], variant_id=good[1].variant_id), replace(good[1], variant_id=good[0].variant_id), *good[2:]],
        [*good[:4], replace(good[4], variant_id=existing)],
        [*good[:4], replace(good[4], variant_id=good[3].variant_id)],
        [*good[:4], replace(good[4], provider="nowhere")],
        [*good[:4], replace(good[4], byte_size=0)],
        [*good[:4], replace(good[4], checksum=b"short")],
        [*good[:4], replace(good[4], width=None)],  # type: ignore[arg-type]
        [*good[:4], replace(good[4], object_key=None)],  # type: ignore[arg-type]
    ]
    for variants in wrong:
        with refused("assets_outcome_shape"):
            await record_ready(worker, job, variants)
    with refused("assets_outcome_shape"):
        await record(worker, job, "ready")
    with refused("assets_outcome_shape"):
        await record(worker, job, "failed_permanent", None)
    with refused("assets_outcome_unknown"):
        await record(worker, job, "abandoned", "assets.image_corrupt")
    with refused("storage_objects_key_uq", "23505"):
        await record_ready(worker, job, [*good[:4], replace(good[4], object_key=good[3].object_key)])
    assert (await statuses(owner, reserved["asset_id"]))[0] == "processing"
    assert await usage(owner, ana) == (2, 500, 1000)
    assert await record_ready(worker, job, list(reversed(good))) == "completed"  # in any order


@pytest.mark.case("A1c.03")
async def test_a_ready_outcome_of_an_archived_asset_keeps_it_archived(
    owner: Connection, admission: Connection, library: Connection, worker: Connection, ana: Person
) -> None:
    reserved = await queue_upload(admission, ana)
    async with acting(library, ana):
        assert await library.fetchval("SELECT assets.archive_asset($1)", reserved["asset_id"]) == "archived"
    assert await record_ready(worker, await claim(worker)) == "completed"
    assert await usage(owner, ana) == (0, 500, 0)


@pytest.mark.case("A1c.04")
async def test_requeues_storage_errors_without_an_attempt_cap_and_dead_letters_the_fifth_processing_error(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    reserved = await queue_upload(admission, ana)
    for attempt in range(1, 13):
        answer, row = await retry(owner, worker, "retry_storage", "assets.storage_unavailable")
        assert answer == row["state"] == "pending"
        assert (row["attempt_count"], row["processing_error_count"]) == (attempt, 0)
        assert (row["error_class"], row["last_error_code"]) == ("storage", "assets.storage_unavailable")
        assert (row["lease_owner"], row["lease_token"], row["lease_expires_at"]) == (None, None, None)
    for errors in range(1, 5):
        answer, row = await retry(owner, worker, "retry_processing", "assets.processing_error")
        assert answer == row["state"] == "pending"
        assert (row["attempt_count"], row["processing_error_count"]) == (12 + errors, errors)
        assert (row["error_class"], row["last_error_code"]) == ("processing", "assets.processing_error")
    answer, row = await retry(owner, worker, "retry_processing", "assets.processing_error")
    assert answer == row["state"] == "dead_lettered"
    assert await statuses(owner, reserved["asset_id"]) == failed_with("assets.processing_exhausted")
    assert await claim(worker) is None


@pytest.mark.case("A1c.04")
@pytest.mark.parametrize("outcome", ["retry_storage", "retry_processing"])
async def test_refuses_a_retry_more_than_15_minutes_ahead(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, outcome: str
) -> None:
    await queue_upload(admission, ana)
    job = await claim(worker)
    for minutes in (None, 15.5):
        with refused("assets_retry_backoff"):
            await record(worker, job, outcome, "assets.storage_unavailable", minutes)
    assert (await job_row(owner, job))["attempt_count"] == 0
    assert await record(worker, job, outcome, "assets.storage_unavailable", 14.5) == "pending"


@pytest.mark.case("A1c.05")
async def test_keeps_a_job_pending_at_its_first_processing_error_after_four_storage_retries(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await queue_upload(admission, ana)
    for _ in range(4):
        await retry(owner, worker, "retry_storage", "assets.storage_unavailable")
    answer, row = await retry(owner, worker, "retry_processing", "assets.processing_error")
    assert (answer, row["attempt_count"], row["processing_error_count"]) == ("pending", 5, 1)


@pytest.mark.case("A1c.06")
async def test_never_resets_the_processing_error_count_on_a_storage_retry(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await queue_upload(admission, ana)
    for errors in range(1, 4):
        await retry(owner, worker, "retry_processing", "assets.processing_error")
        _, row = await retry(owner, worker, "retry_storage", "assets.storage_unavailable")
        assert row["processing_error_count"] == errors
    assert (await claim(worker))["processing_error_count"] == 3


@pytest.mark.case("A1c.07")
async def test_dead_letters_at_the_fifth_processing_error_when_storage_retries_are_interleaved(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    reserved = await queue_upload(admission, ana)
    for _ in range(4):
        assert (await retry(owner, worker, "retry_processing", "assets.processing_error"))[0] == "pending"
        assert (await retry(owner, worker, "retry_storage", "assets.storage_unavailable"))[0] == "pending"
    answer, row = await retry(owner, worker, "retry_processing", "assets.processing_error")
    assert (answer, row["attempt_count"], row["processing_error_count"]) == ("dead_lettered", 9, 5)
    assert await statuses(owner, reserved["asset_id"]) == failed_with("assets.processing_exhausted")


@pytest.mark.case("A1c.08")
async def test_dead_letters_after_five_processing_errors_failing_the_asset_and_releasing_its_reservation_once(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await reserve(admission, ana, intent(byte_size=70))
    reserved = await queue_upload(admission, ana, intent(byte_size=5000))
    for _ in range(4):
        await retry(owner, worker, "retry_processing", "assets.processing_error")
        assert await usage(owner, ana) == (2, 0, 5070)
    job = await claim(worker)
    assert await record(worker, job, "retry_processing", "assets.processing_error", minutes=1) == "dead_lettered"
    assert await usage(owner, ana) == (1, 0, 70)
    assert await statuses(owner, reserved["asset_id"]) == failed_with("assets.processing_exhausted")
    failed_at, settled_at = await owner.fetchrow(
        "SELECT v.failed_at, u.settled_at FROM assets.asset_variants v JOIN assets.uploads u USING (asset_id)"
        " WHERE asset_id = $1",
        reserved["asset_id"],
    )
    assert failed_at is not None and settled_at is not None
    row = await job_row(owner, job)
    assert (row["state"], row["lease_token"], row["completed_at"]) == ("dead_lettered", None, None)
    with refused("assets_job_lease_lost"):
        await record(worker, job, "retry_processing", "assets.processing_error", minutes=1)
    assert await usage(owner, ana) == (1, 0, 70)


@pytest.mark.case("A1c.08")
@pytest.mark.case("A3c.05")
async def test_counts_a_reclaimed_expired_lease_as_a_processing_error_and_dead_letters_the_job_at_the_fifth(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    reserved = await queue_upload(admission, ana, intent(byte_size=5000))
    job = await claim(worker)
    for errors in range(1, 5):
        await lapse_lease(owner, job)
        job = await claim(worker)
        assert (job["claim_state"], job["processing_error_count"], job["attempt_count"]) == ("leased", errors, errors)
        row = await job_row(owner, job)
        assert (row["error_class"], row["last_error_code"]) == ("processing", "assets.lease_expired")
    await lapse_lease(owner, job)
    buried = await claim(worker)
    assert (buried["claim_state"], buried["processing_error_count"]) == ("dead_lettered", 5)
    assert (buried["job_id"], buried["staging_object_key"]) == (job["job_id"], job["staging_object_key"])
    assert (await job_row(owner, job))["state"] == "dead_lettered"
    assert await statuses(owner, reserved["asset_id"]) == failed_with("assets.processing_exhausted")
    assert await usage(owner, ana) == (0, 0, 0)
    assert await claim(worker) is None


@pytest.mark.case("A1c.08")
async def test_a_purge_whose_worker_died_five_times_is_dead_lettered_alone(
    owner: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await insert_asset(owner, ana.organization_id, "failed")
    await insert_job(owner, ana.organization_id, asset_id, job_kind="'purge_asset'")
    for _ in range(5):
        job = await claim(worker, kinds=("purge_asset",))
        assert job["claim_state"] == "leased"
        await lapse_lease(owner, job)
    assert (await claim(worker, kinds=("purge_asset",)))["claim_state"] == "dead_lettered"
    assert await owner.fetchval("SELECT status FROM assets.assets WHERE id = $1", asset_id) == "failed"


@pytest.mark.case("A1c.08")
async def test_burying_a_job_never_waits_for_a_lock_and_lets_other_work_pass(
    database: DatabaseUnderTest,
    owner: Connection,
    admission: Connection,
    worker: Connection,
    ana: Person,
    bruno: Person,
) -> None:
    await queue_upload(admission, ana)
    job = await claim(worker)
    await owner.execute("UPDATE assets.processing_jobs SET processing_error_count = 4")
    await lapse_lease(owner, job)
    other = await queue_upload(admission, bruno)
    await worker.execute("SET lock_timeout = '2s'")
    for table in ("organization_usage WHERE organization_id = $1", "assets WHERE organization_id = $1"):
        async with owner.transaction():
            await owner.execute(f"SELECT FROM assets.{table} FOR UPDATE", ana.organization_id)
            passed = await claim(worker)
            assert (passed["claim_state"], passed["asset_id"]) == ("leased", other["asset_id"])
        await worker.execute("SELECT assets.release_processing_job($1, $2)", passed["job_id"], passed["lease_token"])
    assert (await claim(worker))["claim_state"] == "dead_lettered"


@pytest.mark.case("A1c.08")
@pytest.mark.case("A3c.06")
@pytest.mark.parametrize("processing_errors", [0, 4])
async def test_completes_a_job_whose_asset_no_longer_waits_instead_of_reclaiming_it_forever(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, processing_errors: int
) -> None:
    reserved = await queue_upload(admission, ana)
    await queue_upload(admission, ana)
    job = await claim(worker)
    await owner.execute(
        "UPDATE assets.assets SET status = 'failed', failed_at = now(), failure_code = 'assets.erased' WHERE id = $1",
        reserved["asset_id"],
    )
    for outcome, code in (("failed_permanent", "assets.image_corrupt"), ("ready", None)):
        with refused("assets_outcome_state"):
            if outcome == "ready":
                await record_ready(worker, job)
            else:
                await record(worker, job, outcome, code)
    before = await usage(owner, ana)
    await owner.execute("UPDATE assets.processing_jobs SET processing_error_count = $1", processing_errors)
    await lapse_lease(owner, job)
    abandoned = await claim(worker)
    assert (abandoned["claim_state"], abandoned["job_id"]) == ("completed", job["job_id"])
    row = await job_row(owner, job)
    assert (row["state"], row["last_error_code"], row["lease_token"]) == ("completed", "assets.job_abandoned", None)
    assert await usage(owner, ana) == before
    pending = await owner.fetchval("SELECT asset_id FROM assets.processing_jobs WHERE state = 'pending'")
    await owner.execute(
        "UPDATE assets.uploads SET state = 'rejected', settled_at = now(), rejection_code = 'x' WHERE asset_id = $1",
        pending,
    )
    assert (await claim(worker))["claim_state"] == "completed"  # one that was never claimed, too
    assert await claim(worker) is None


@pytest.mark.case("A1c.09")
async def test_fails_the_asset_and_releases_its_reservation_on_a_permanent_failure(
    owner: Connection, admission: Connection, library: Connection, worker: Connection, ana: Person
) -> None:
    await reserve(admission, ana, intent(byte_size=70))
    reserved = await queue_upload(admission, ana, intent(byte_size=5000))
    job = await claim(worker)
    assert await record(worker, job, "failed_permanent", "assets.image_corrupt") == "completed"
    assert await statuses(owner, reserved["asset_id"]) == failed_with("assets.image_corrupt")
    assert await usage(owner, ana) == (1, 0, 70)
    row = await job_row(owner, job)
    assert (row["state"], row["error_class"], row["last_error_code"]) == (
        "completed",
        "permanent",
        "assets.image_corrupt",
    )
    assert await claim(worker) is None

    archived = await queue_upload(admission, ana, intent(byte_size=300))
    async with acting(library, ana):
        await library.fetchval("SELECT assets.archive_asset($1)", archived["asset_id"])
    assert await usage(owner, ana) == (1, 0, 370)
    await record(worker, await claim(worker), "failed_permanent", "assets.image_corrupt")
    assert await usage(owner, ana) == (1, 0, 70)  # its slot was free already


@pytest.mark.case("A1c.09")
async def test_accepts_nothing_but_a_storage_retry_for_another_kind_of_job(
    owner: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await insert_asset(owner, ana.organization_id, "failed")
    await insert_job(owner, ana.organization_id, asset_id, job_kind="'purge_asset'")
    job = await claim(worker, kinds=("purge_asset",))
    assert (job["upload_id"], job["original_variant_id"]) == (None, None)
    for outcome in ("ready", "retry_processing", "failed_permanent"):
        with refused("assets_outcome_job_kind"):
            await record(worker, job, outcome, "assets.processing_error", minutes=1)
    assert await record(worker, job, "retry_storage", "assets.storage_unavailable", minutes=1) == "pending"


@pytest.mark.case("A1c.12")
async def test_refuses_every_processing_function_to_the_runtime_and_every_table_to_the_worker(
    database: DatabaseUnderTest, owner: Connection, worker: Connection
) -> None:
    rows = await owner.fetch(
        """SELECT p.proname, has_function_privilege('ninaku_worker', p.oid, 'EXECUTE') AS worker,
            has_function_privilege('ninaku_runtime', p.oid, 'EXECUTE') AS runtime
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname IN ('organization', 'identity', 'platform', 'audit', 'assets')"""
    )
    for_worker = {row["proname"] for row in rows if row["worker"]}
    assert for_worker == {
        "claim_processing_job",
        "record_processing_outcome",
        "release_processing_job",
        "expire_uploads",
        "reconcile_usage_batch",
        "begin_sweep",
        "continue_sweep",
        "next_job_at",
        "purge_asset_begin",
        "purge_asset_finish",
        "lease_standing",
        "enqueue_purge_candidates",
        "prune_finished_jobs",
        "prune_settled_uploads",
    }
    assert for_worker.isdisjoint(row["proname"] for row in rows if row["runtime"])
    for login in ("ninaku_admission", "ninaku_library", "ninaku_delivery", "ninaku_processing"):
        connection = await database.login(login)
        with denied():
            await claim(connection)
        with denied():
            await connection.fetch("SELECT assets.expire_uploads(1, NULL)")
    tables = await owner.fetch(
        """SELECT c.oid::regclass::text AS name, c.relkind::text AS kind
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname IN ('organization', 'identity', 'platform', 'audit', 'assets', 'ninaku_migrations')
            AND c.relkind IN ('r', 'S', 'v', 'm', 'p')"""
    )
    assert len(tables) > 20
    for table in tables:
        with denied():
            await worker.fetch(f"SELECT * FROM {table['name']}")
        # Asked of the catalog too: row-level security would refuse a table that is granted.
        for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"):
            if table["kind"] != "S":
                assert not await owner.fetchval(
                    "SELECT has_table_privilege('ninaku_worker', $1, $2)", table["name"], privilege
                ), f"{privilege} on {table['name']}"


@pytest.mark.case("A1c.13")
async def test_gives_two_concurrent_claimers_disjoint_jobs_and_lets_a_reclaimed_lease_win_only_after_expiry(
    database: DatabaseUnderTest,
    owner: Connection,
    admission: Connection,
    worker: Connection,
    ana: Person,
    bruno: Person,
) -> None:
    queued = {(await queue_upload(admission, person))["asset_id"] for person in (ana, ana, bruno)}
    second, third = [await database.login("ninaku_processing_worker") for _ in range(2)]
    await second.execute("SET lock_timeout = '2s'")
    await third.execute("SET lock_timeout = '2s'")
    async with worker.transaction():
        first_job = await claim(worker)  # and its transaction stays open
        second_job = await claim(second, name="worker-2")
        third_job = await claim(third, name="worker-3")
        assert await claim(second) is None
    assert {job["asset_id"] for job in (first_job, second_job, third_job)} == queued

    assert await claim(second) is None  # every lease lives
    await lapse_lease(owner, first_job)
    async with second.transaction():
        reclaimed = await claim(second, name="worker-2")
        assert reclaimed["job_id"] == first_job["job_id"]
        assert await claim(third) is None
    with refused("assets_job_lease_lost"):
        await record_ready(worker, first_job)
    assert await record_ready(second, reclaimed) == "completed"


@pytest.mark.case("A1c.13")
async def test_eight_claimers_at_once_share_forty_jobs_without_one_twice(
    database: DatabaseUnderTest, owner: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    for person in (ana, bruno):
        for _ in range(20):
            asset_id = await insert_asset(owner, person.organization_id, "failed")
            await insert_job(owner, person.organization_id, asset_id, job_kind="'purge_asset'")
    claimers = [await database.login("ninaku_processing_worker") for _ in range(8)]

    async def drain(connection: Connection) -> list[UUID]:
        claimed = []
        while (job := await claim(connection, kinds=("purge_asset",))) is not None:
            claimed.append(job["job_id"])
        return claimed

    claimed = [job for jobs in await asyncio.gather(*map(drain, claimers)) for job in jobs]
    assert len(claimed) == len(set(claimed)) == 40


async def test_a_released_job_goes_back_untried_to_its_place(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    first = await queue_upload(admission, ana)
    await queue_upload(admission, ana)
    heard: asyncio.Queue[str] = asyncio.Queue()
    await owner.add_listener("assets_processing_jobs", lambda *message: heard.put_nowait(message[3]))
    job = await claim(worker)
    release = "SELECT assets.release_processing_job($1, $2)"
    assert await worker.fetchval(release, job["job_id"], job["lease_token"]) == "released"
    assert await asyncio.wait_for(heard.get(), 10) == ""
    assert await worker.fetchval(release, job["job_id"], job["lease_token"]) == "lease_lost"
    row = await job_row(owner, job)
    assert (row["state"], row["attempt_count"], row["processing_error_count"]) == ("pending", 0, 0)
    assert (await claim(worker))["asset_id"] == first["asset_id"]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_refuses_to_work_outside_read_committed(worker: Connection, isolation: str) -> None:
    for call in (
        "SELECT assets.claim_processing_job('w', gen_random_uuid(), 60, '{process_upload}')",
        "SELECT assets.release_processing_job(gen_random_uuid(), gen_random_uuid())",
        "SELECT assets.expire_uploads(1, NULL)",
        "SELECT assets.reconcile_usage_batch(NULL, 1)",
        f"SELECT assets.record_processing_outcome(uuidv7(), uuidv7(), 'ready'{', NULL' * 12})",
    ):
        with refused("assets_processing_isolation"):
            async with worker.transaction(isolation=isolation):
                await worker.fetch(call)
