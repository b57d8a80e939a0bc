"""What is kept, and for how long."""

from uuid import UUID

import pytest

from tests.database.arrange import acting, complete, intent, ready_asset, refused, reserve, reserve_in
from tests.database.failure import (
    archived_asset,
    begin,
    claim_purge,
    dead_letter,
    finish,
    queue_purge,
    requeue,
    violations,
)
from tests.support.database import Connection, DatabaseUnderTest, Person


async def age(owner: Connection, asset_id: UUID, days: float) -> None:
    """Job and upload of the asset were settled that long ago."""
    await owner.execute(
        "UPDATE assets.processing_jobs SET completed_at = now() - make_interval(secs => $2 * 86400)"
        " WHERE asset_id = $1 AND state = 'completed'",
        asset_id,
        days,
    )
    await owner.execute(
        "UPDATE assets.uploads SET settled_at = now() - make_interval(secs => $2 * 86400) WHERE asset_id = $1",
        asset_id,
        days,
    )


async def left(owner: Connection, table: str) -> set[UUID]:
    return {row["asset_id"] for row in await owner.fetch(f"SELECT asset_id FROM assets.{table}")}


@pytest.mark.parametrize("table", ["processing_jobs", "uploads"])
async def test_what_was_settled_35_days_ago_goes_oldest_first_in_batches_and_nothing_else(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, table: str
) -> None:
    function = {"processing_jobs": "prune_finished_jobs", "uploads": "prune_settled_uploads"}[table]
    ages = (50, 35.01, 34.99, 40)
    assets = {days: await ready_asset(admission, worker, ana) for days in ages}
    for days, asset_id in assets.items():
        await age(owner, asset_id, days)
    open_one = await reserve(admission, ana)
    await complete(admission, ana, open_one["upload_id"])

    assert await worker.fetchval(f"SELECT assets.{function}(2)") == 2
    assert await left(owner, table) == {assets[35.01], assets[34.99], open_one["asset_id"]}
    assert await worker.fetchval(f"SELECT assets.{function}(2)") == 1
    assert await worker.fetchval(f"SELECT assets.{function}(2)") == 0
    assert await left(owner, table) == {assets[34.99], open_one["asset_id"]}
    assert await violations(owner) == []
    for batch in (0, 501, None):
        with refused("assets_sweep_batch"):
            await worker.fetchval(f"SELECT assets.{function}($1)", batch)


async def test_a_dead_letter_is_never_pruned(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    job = await dead_letter(owner, admission, worker, ana)
    await owner.execute(
        "UPDATE assets.processing_jobs SET created_at = now() - interval '1 year',"
        " updated_at = now() - interval '1 year'"
    )
    assert await worker.fetchval("SELECT assets.prune_finished_jobs(500)") == 0
    assert await requeue(owner, job["job_id"]) == [("requeued", None)]


async def test_pruning_passes_by_what_others_hold_locked(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    assets = [await ready_asset(admission, worker, ana) for _ in range(2)]
    for asset_id in assets:
        await age(owner, asset_id, 40)
    holder = await database.owner()
    async with holder.transaction():
        for table in ("processing_jobs", "uploads"):
            await holder.execute(f"SELECT FROM assets.{table} WHERE asset_id = $1 FOR UPDATE", assets[0])
        await worker.execute("SET lock_timeout = '2s'")
        assert await worker.fetchval("SELECT assets.prune_finished_jobs(500)") == 1
        assert await worker.fetchval("SELECT assets.prune_settled_uploads(500)") == 1
    assert await left(owner, "uploads") == {assets[0]}


async def test_whoever_reads_a_settled_upload_is_done_with_it_when_it_is_pruned(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    wanted = intent()
    reserved = await reserve(admission, ana, wanted)
    asset_id = await archived_asset(admission, worker, ana)
    await owner.execute(
        "UPDATE assets.uploads SET state = 'expired', settled_at = now() - interval '36 days',"
        " created_at = now() - interval '37 days' WHERE id = $1",
        reserved["upload_id"],
    )
    await owner.execute(
        "UPDATE assets.assets SET status = 'failed', failed_at = now(), failure_code = 'assets.upload_expired'"
        " WHERE id = $1",
        reserved["asset_id"],
    )
    await age(owner, asset_id, 36)
    assert await worker.fetchval("SELECT assets.prune_settled_uploads(500)") == 2

    # The key makes a new upload; the old asset is still read; both old ones are purged without their uploads.
    async with acting(admission, ana):
        assert (await reserve_in(admission, wanted.again()))["outcome"] == "created"
        seen = await admission.fetchval("SELECT outcome FROM assets.asset_in_context($1)", reserved["asset_id"])
        assert seen == "found"
    for each in (reserved["asset_id"], asset_id):
        await queue_purge(owner, each)
        job = await claim_purge(worker)
        answer = await begin(worker, job)
        assert (answer["outcome"], answer["staging_object_key"], answer["staging_provider_code"]) == (
            "deletable", None, None,
        )  # fmt: skip
        assert await finish(worker, job) == "purged"


@pytest.mark.parametrize("sweep", ["enqueue_purges", "prune_finished_jobs", "prune_settled_uploads"])
async def test_each_daily_sweep_runs_once_a_day_for_the_fleet_beside_the_others(
    database: DatabaseUnderTest, worker: Connection, sweep: str
) -> None:
    other = await database.login("ninaku_processing_worker")
    async with worker.transaction():
        assert await worker.fetchval("SELECT assets.begin_sweep($1)", sweep)
        async with other.transaction():
            assert not await other.fetchval("SELECT assets.begin_sweep($1)", sweep)
            assert not await other.fetchval("SELECT assets.continue_sweep($1)", sweep)
            assert await other.fetchval("SELECT assets.begin_sweep('expire_uploads')")
    assert not await other.fetchval("SELECT assets.begin_sweep($1)", sweep)
    assert await other.fetchval("SELECT assets.continue_sweep($1)", sweep)
