"""Purging assets, and what stops it (stage A4b)."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.database.arrange import (
    PROFILE_1,
    acting,
    claim,
    denied,
    intent,
    lapse_lease,
    queue_upload,
    ready_asset,
    record,
    refused,
    reserve,
    usage,
)
from tests.database.failure import (
    age_archival,
    archived_asset,
    begin,
    claim_purge,
    everything,
    finish,
    queue_purge,
    record_claim,
    violations,
)
from tests.support.database import Connection, DatabaseUnderTest, Person


@pytest.mark.case("A4b.01")
async def test_answers_referenced_for_an_asset_a_catalog_item_still_uses_and_changes_nothing(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    assert await record_claim(owner, ana, asset_id) == "recorded"
    async with acting(admission, ana):
        await admission.fetchval("SELECT assets.archive_asset($1)", asset_id)
    await queue_purge(owner, asset_id)
    job = await claim_purge(worker)
    before = await everything(owner)

    answer = await begin(worker, job)

    assert (answer["outcome"], answer["object_keys"]) == ("referenced", None)
    after = await everything(owner)
    jobs = "assets.processing_jobs"
    assert {name: rows for name, rows in after.items() if name != jobs} == {
        name: rows for name, rows in before.items() if name != jobs
    }
    row = await owner.fetchrow("SELECT state, last_error_code FROM assets.processing_jobs WHERE id = $1", job["job_id"])
    assert tuple(row.values()) == ("completed", "assets.asset_referenced")
    with refused("assets_job_lease_lost"):
        await finish(worker, job)


@pytest.mark.case("A4b.02")
async def test_marks_an_unreferenced_archived_asset_purging_with_its_storage_rows_untouched_then_deletes_all_at_once(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    kept = await ready_asset(admission, worker, ana)
    asset_id = await archived_asset(admission, worker, ana)
    token = await owner.fetchval("SELECT delivery_token FROM assets.assets WHERE id = $1", asset_id)
    staging = await owner.fetchval("SELECT staging_object_key FROM assets.uploads WHERE asset_id = $1", asset_id)
    await queue_purge(owner, asset_id)
    job = await claim_purge(worker)
    before = await everything(owner)

    answer = await begin(worker, job)

    renditions = [f"a/{token}/p1/{name}.webp" for name in ("card", "detail", "thumbnail", "tile")]
    assert dict(answer) == {
        "outcome": "deletable",
        "object_keys": [*renditions, f"m/{token}/original.webp"],
        "provider_codes": ["r2-public"] * 4 + ["s3-private"],
        "staging_provider_code": "s3-private",
        "staging_object_key": staging,
        "public_rendition_names": [code.removeprefix("p1-") for code in PROFILE_1],
        "delivery_token": token,
        "rendition_profile": 1,
    }
    after = await everything(owner)
    assert {name for name, rows in after.items() if rows != before[name]} == {"assets.assets"}
    assert await owner.fetchval("SELECT status FROM assets.assets WHERE id = $1", asset_id) == "purging"
    assert dict(await begin(worker, job)) == dict(answer)  # a retry starts over with the same
    assert await usage(owner, ana) == (1, 1000, 0)
    assert await violations(owner) == []

    assert await finish(worker, job) == "purged"

    assert await usage(owner, ana) == (1, 500, 0)
    for table, column in (
        ("assets", "id"), ("asset_variants", "asset_id"), ("uploads", "asset_id"), ("processing_jobs", "asset_id"),
    ):  # fmt: skip
        rows = await owner.fetch(f"SELECT {column} FROM assets.{table}")
        assert {row[column] for row in rows} == {kept}
    assert await owner.fetchval("SELECT count(*) FROM assets.storage_objects") == 5
    receipt = await owner.fetchrow("SELECT * FROM assets.read_purge_receipt($1)", asset_id)
    assert (receipt["delivery_token"], receipt["object_keys"], receipt["staging_key"], receipt["stored_bytes"]) == (
        token, answer["object_keys"], staging, 500,
    )  # fmt: skip
    told = await owner.fetch(
        "SELECT organization_id, service, outcome FROM audit.records"
        " WHERE action_code = 'assets.asset.purged' AND resource_id = $1",
        asset_id,
    )
    assert [tuple(row.values()) for row in told] == [(ana.organization_id, "processing", "succeeded")]
    assert await violations(owner, settled=True) == []
    with refused("assets_job_lease_lost"):
        await finish(worker, job)


async def test_a_purge_is_refused_to_a_lost_lease_in_both_steps_and_to_other_work(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await archived_asset(admission, worker, ana)
    await queue_purge(owner, asset_id)
    job = await claim_purge(worker)
    with refused("assets_outcome_state"):
        await finish(worker, job)  # nothing has begun
    for stale in ({**job, "lease_token": uuid4()}, {**job, "job_id": uuid4()}):
        for step in (begin, finish):
            with refused("assets_job_lease_lost"):
                await step(worker, stale)
    assert await owner.fetchval("SELECT status FROM assets.assets WHERE id = $1", asset_id) == "ready"
    assert (await begin(worker, job))["outcome"] == "deletable"
    await lapse_lease(owner, job)
    for step in (begin, finish):
        with refused("assets_job_lease_lost"):
            await step(worker, job)
    again = await claim_purge(worker)
    assert (again["job_id"], again["processing_error_count"]) == (job["job_id"], 1)
    assert (await begin(worker, again))["outcome"] == "deletable"
    assert await finish(worker, again) == "purged"

    await queue_upload(admission, ana)
    upload = await claim(worker)
    for step in (begin, finish):
        with refused("assets_outcome_job_kind"):
            await step(worker, upload)


async def test_a_failed_asset_without_objects_is_purged(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    reserved = await queue_upload(admission, ana)
    await record(worker, await claim(worker), "failed_permanent", "assets.image_corrupt")
    await queue_purge(owner, reserved["asset_id"])
    job = await claim_purge(worker)
    answer = await begin(worker, job)
    assert (answer["outcome"], answer["object_keys"], answer["provider_codes"]) == ("deletable", [], [])
    assert answer["public_rendition_names"] == ["thumbnail", "tile", "card", "detail"]
    assert await finish(worker, job) == "purged"
    assert await violations(owner, settled=True) == []


async def test_a_private_asset_has_no_public_renditions_to_purge(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await queue_upload(admission, ana, intent(access_class="private", allowed=("private",)))
    job = await claim(worker)
    await record(worker, job, "failed_permanent", "assets.image_corrupt")
    await queue_purge(owner, job["asset_id"])
    assert (await begin(worker, await claim_purge(worker)))["public_rendition_names"] == []


async def test_an_asset_that_lives_again_is_left_alone(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await archived_asset(admission, worker, ana)
    await queue_purge(owner, asset_id)
    async with acting(admission, ana):
        assert await admission.fetchval("SELECT assets.restore_asset($1)", asset_id) == "restored"
    job = await claim_purge(worker)
    assert (await begin(worker, job))["outcome"] == "abandoned"
    row = await owner.fetchrow("SELECT state, last_error_code FROM assets.processing_jobs WHERE id = $1", job["job_id"])
    assert tuple(row.values()) == ("completed", "assets.job_abandoned")
    assert await owner.fetchval("SELECT status FROM assets.assets WHERE id = $1", asset_id) == "ready"


@pytest.mark.case("A4b.03")
async def test_refuses_attaching_or_restoring_a_purging_asset(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await archived_asset(admission, worker, ana)
    await queue_purge(owner, asset_id)
    await begin(worker, await claim_purge(worker))
    assert await record_claim(owner, ana, asset_id) == "purging"
    for function in ("restore_asset", "archive_asset"):
        with refused("assets_status_transition"):
            async with acting(admission, ana):
                await admission.fetchval(f"SELECT assets.{function}($1)", asset_id)
    assert await owner.fetchval("SELECT count(*) FROM assets.asset_claims") == 0


async def waiting_for_a_lock(database: DatabaseUnderTest, call: asyncio.Task[Any]) -> None:
    """Returns once the call waits behind another transaction."""
    watcher = await database.owner()
    while not await watcher.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
        await asyncio.sleep(0.01)
        assert not call.done()


@pytest.mark.case("A4b.01")
async def test_a_purge_that_begins_while_a_claim_is_recorded_waits_and_sees_it(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    await queue_purge(owner, asset_id)
    job = await claim_purge(worker)
    async with owner.transaction():
        assert await record_claim(owner, ana, asset_id) == "recorded"
        await owner.execute("UPDATE assets.assets SET archived_at = now() WHERE id = $1", asset_id)
        purge = asyncio.create_task(begin(worker, job))
        await waiting_for_a_lock(database, purge)
    assert (await purge)["outcome"] == "referenced"


@pytest.mark.case("A4b.03")
async def test_a_claim_that_arrives_while_a_purge_begins_waits_and_is_refused(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await archived_asset(admission, worker, ana)
    await queue_purge(owner, asset_id)
    job = await claim_purge(worker)
    async with worker.transaction():
        assert (await begin(worker, job))["outcome"] == "deletable"
        claiming = asyncio.create_task(record_claim(owner, ana, asset_id))
        await waiting_for_a_lock(database, claiming)
    assert await claiming == "purging"


async def test_a_claim_is_kept_once_with_its_highest_revision_and_never_for_what_cannot_be_attached(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    pending = (await reserve(admission, ana))["asset_id"]
    archived = await archived_asset(admission, worker, ana)
    assert await record_claim(owner, bruno, asset_id) == "not_found"
    assert await record_claim(owner, ana, uuid4()) == "not_found"
    assert await record_claim(owner, ana, pending) == "not_ready"
    assert await record_claim(owner, ana, archived) == "archived"
    for revision in (5, 3, 7, 6):
        assert await record_claim(owner, ana, asset_id, revision=revision) == "recorded"
    assert await record_claim(owner, ana, asset_id, reference="item-2") == "recorded"
    rows = await owner.fetch("SELECT reference, revision FROM assets.asset_claims ORDER BY reference")
    assert [tuple(row.values()) for row in rows] == [("item-1", 7), ("item-2", 1)]
    await owner.execute("UPDATE assets.asset_claims SET unsettled_since = NULL WHERE reference = 'item-1'")
    unsettled = "SELECT unsettled_since IS NOT NULL FROM assets.asset_claims WHERE reference = 'item-1'"
    await record_claim(owner, ana, asset_id, revision=7)
    assert not await owner.fetchval(unsettled)
    await record_claim(owner, ana, asset_id, revision=8)
    assert await owner.fetchval(unsettled)


async def test_a_consumers_own_foreign_key_stops_a_purge_before_and_keeps_the_asset_purging_after_it_began(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await owner.execute("CREATE TABLE public.consumer (asset_id uuid REFERENCES assets.assets (id))")
    asset_id = await archived_asset(admission, worker, ana)
    await queue_purge(owner, asset_id)
    job = await claim_purge(worker)
    assert (await begin(worker, job))["outcome"] == "deletable"
    await owner.execute("INSERT INTO public.consumer VALUES ($1)", asset_id)
    before = await usage(owner, ana)

    assert await finish(worker, job) == "referenced_after_purge"

    row = await owner.fetchrow(
        "SELECT a.status, j.state, j.last_error_code FROM assets.assets a"
        " JOIN assets.processing_jobs j ON j.asset_id = a.id AND j.id = $1",
        job["job_id"],
    )
    assert tuple(row.values()) == ("purging", "dead_lettered", "assets_asset_referenced_after_purge")
    assert await usage(owner, ana) == before
    assert await violations(owner) == []

    another = await archived_asset(admission, worker, ana)
    await owner.execute("INSERT INTO public.consumer VALUES ($1)", another)
    await queue_purge(owner, another)
    assert (await begin(worker, await claim_purge(worker)))["outcome"] == "referenced"


async def test_a_counter_that_had_drifted_is_counted_anew_instead_of_stopping_a_purge(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await ready_asset(admission, worker, ana)
    asset_id = await archived_asset(admission, worker, ana)
    await owner.execute("UPDATE assets.organization_usage SET stored_bytes = 7")
    await queue_purge(owner, asset_id)
    job = await claim_purge(worker)
    await begin(worker, job)
    assert await finish(worker, job) == "purged"
    assert await usage(owner, ana) == (1, 500, 0)


async def test_the_id_and_the_token_of_a_purged_asset_are_never_used_again(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await archived_asset(admission, worker, ana)
    token = await owner.fetchval("SELECT delivery_token FROM assets.assets WHERE id = $1", asset_id)
    await queue_purge(owner, asset_id)
    job = await claim_purge(worker)
    await begin(worker, job)
    await finish(worker, job)
    for again in (intent(delivery_token=token), intent(asset_id=asset_id)):
        with refused("assets_purged_for_good"):
            await reserve(admission, ana, again)


@pytest.mark.case("A4b.04")
async def test_enqueues_only_assets_archived_for_30_days_or_failed_for_7_once_a_month_at_most(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    async def failed(days: float) -> UUID:
        reserved = await queue_upload(admission, ana)
        await record(worker, await claim(worker), "failed_permanent", "assets.image_corrupt")
        await owner.execute(
            "UPDATE assets.assets SET created_at = created_at - interval '1 year',"
            " failed_at = now() - make_interval(secs => $2 * 86400) WHERE id = $1",
            reserved["asset_id"],
            days,
        )
        asset_id: UUID = reserved["asset_id"]
        return asset_id

    async def archived(days: float) -> UUID:
        asset_id = await archived_asset(admission, worker, ana)
        await age_archival(owner, asset_id, days)
        return asset_id

    async def swept() -> set[UUID]:
        known = {row["id"] for row in await owner.fetch("SELECT id FROM assets.processing_jobs")}
        count = await worker.fetchval("SELECT assets.enqueue_purge_candidates(500)")
        rows = await owner.fetch(
            "SELECT asset_id, job_kind FROM assets.processing_jobs WHERE NOT id = ANY ($1)", list(known)
        )
        assert count == len(rows)
        assert {row["job_kind"] for row in rows} <= {"purge_asset"}
        return {row["asset_id"] for row in rows}

    async def settle(state: str, days: float) -> None:
        await owner.execute(
            "UPDATE assets.processing_jobs SET state = $1::varchar, completed_at = CASE WHEN $1 = 'completed' THEN"
            " now() - make_interval(secs => $2 * 86400) END, lease_owner = NULL, lease_token = NULL,"
            " lease_expires_at = NULL WHERE job_kind = 'purge_asset'",
            state,
            days,
        )

    due = {await archived(30.01), await failed(7.01)}
    await archived(29.99)
    await failed(6.99)
    living = await ready_asset(admission, worker, ana)
    await age_archival(owner, living, 60)
    await owner.execute("UPDATE assets.assets SET archived_at = NULL WHERE id = $1", living)

    assert await swept() == due
    assert await swept() == set()  # open
    await settle("completed", 29.99)
    assert await swept() == set()  # still used, asked this month
    await settle("completed", 30.01)
    assert await swept() == due
    await settle("dead_lettered", 0)
    assert await swept() == set()  # an operator's now
    await settle("completed", 40)
    assert await swept() == due
    for asset_id in due:
        await owner.execute("UPDATE assets.assets SET status = 'purging' WHERE id = $1", asset_id)
    await settle("completed", 40)
    assert await swept() == set()


@pytest.mark.case("A4b.04")
async def test_purges_are_queued_in_batches_longest_due_first_and_two_sweeps_queue_each_once(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    ages = {}
    for days in (31, 45, 60, 33):
        ages[await archived_asset(admission, worker, ana)] = days
    for asset_id, days in ages.items():
        await age_archival(owner, asset_id, days)
    assert await worker.fetchval("SELECT assets.enqueue_purge_candidates(2)") == 2
    queued = await owner.fetch("SELECT asset_id FROM assets.processing_jobs WHERE job_kind = 'purge_asset'")
    assert {ages[row["asset_id"]] for row in queued} == {60, 45}
    second = await database.login("ninaku_processing_worker")
    counts = await asyncio.gather(
        *(one.fetchval("SELECT assets.enqueue_purge_candidates(500)") for one in (worker, second))
    )
    assert sum(counts) == 2
    for batch in (0, 501, None):
        with refused("assets_sweep_batch"):
            await worker.fetchval("SELECT assets.enqueue_purge_candidates($1)", batch)


async def test_a_worker_knows_whether_its_objects_are_still_wanted(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    async def standing(job: dict[str, object]) -> str:
        answer: str = await worker.fetchval(
            "SELECT assets.lease_standing($1, $2, $3)", job["job_id"], job["lease_token"], job["asset_id"]
        )
        return answer

    await queue_upload(admission, ana)
    job = await claim(worker)
    assert await standing(job) == "held"
    await lapse_lease(owner, job)
    assert await standing(job) == "superseded"
    await claim(worker)
    assert await standing(job) == "superseded"
    await owner.execute("SELECT outcome FROM assets.erase_asset($1)", job["asset_id"])
    assert await standing(job) == "unwanted"
    purge = await claim_purge(worker)
    await begin(worker, purge)
    await finish(worker, purge)
    assert await standing(job) == "unwanted"


async def test_only_the_worker_purges(database: DatabaseUnderTest, owner: Connection) -> None:
    for login in ("ninaku_admission", "ninaku_library", "ninaku_delivery", "ninaku_processing"):
        connection = await database.login(login)
        for call in ("purge_asset_begin($1, $1)", "purge_asset_finish($1, $1)", "lease_standing($1, $1, $1)"):
            with denied():
                await connection.fetch(f"SELECT assets.{call}", uuid4())
    worker = await database.login("ninaku_processing_worker")
    for call in ("erase_asset($1)", "read_purge_receipt($1)", "record_claim('x', $1, 'x', 1, $1)"):
        with denied():
            await worker.fetch(f"SELECT assets.{call}", uuid4())
