"""Requeueing what was given up, and showing it (stage A3c)."""

import asyncio
from uuid import UUID, uuid4

import pytest

from tests.database.arrange import acting, claim, denied, make_due, ready_asset, record, record_ready, refused, usage
from tests.database.failure import (
    age_archival,
    archived_asset,
    claim_purge,
    dead_letter,
    finish,
    queue_purge,
    requeue,
    violations,
)
from tests.support.database import Connection, DatabaseUnderTest, Person

_STATE = """SELECT a.status, a.failure_code, a.failed_at, u.state, u.rejection_code, u.settled_at, v.status
    FROM assets.assets a JOIN assets.uploads u ON u.asset_id = a.id JOIN assets.asset_variants v ON v.asset_id = a.id
    WHERE a.id = $1"""


async def kill_purge(owner: Connection, asset_id: UUID) -> UUID:
    """A dead-lettered purge of the asset."""
    await queue_purge(owner, asset_id)
    job_id: UUID = await owner.fetchval(
        "UPDATE assets.processing_jobs SET state = 'dead_lettered', processing_error_count = 5, attempt_count = 9,"
        " error_class = 'processing', last_error_code = 'assets.lease_expired'"
        " WHERE asset_id = $1 AND job_kind = 'purge_asset' AND state = 'pending' RETURNING id",
        asset_id,
    )
    return job_id


@pytest.mark.case("A3c.04")
async def test_requeues_an_upload_of_the_last_day_only_through_the_operators_function_restoring_its_reservation(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    job = await dead_letter(owner, admission, worker, ana, byte_size=7000)
    old = await dead_letter(owner, admission, worker, ana)
    await owner.execute(
        "UPDATE assets.uploads SET created_at = now() - interval '24 hours' WHERE asset_id = $1", old["asset_id"]
    )
    assert await usage(owner, ana) == (0, 0, 0)
    for login in ("ninaku_processing_worker", "ninaku_processing", "ninaku_admission", "ninaku_delivery"):
        connection = await database.login(login)
        with denied():
            await connection.fetch("SELECT * FROM assets.requeue_dead_letters($1)", [job["job_id"]])

    assert await requeue(owner, job["job_id"], old["job_id"]) == [
        ("requeued", None),
        ("skipped_ineligible", "too_old"),
    ]

    row = tuple((await owner.fetchrow(_STATE, job["asset_id"])).values())
    assert row == ("processing", None, None, "received", None, None, "processing")
    assert await usage(owner, ana) == (1, 0, 7000)
    assert await violations(owner) == []
    assert await record_ready(worker, await claim(worker)) == "completed"
    assert await usage(owner, ana) == (1, 500, 0)
    actions = await owner.fetch(
        "SELECT service, organization_id, before_attributes->>'errorCode' FROM audit.records"
        " WHERE action_code = 'assets.asset.requeued' AND resource_id = $1",
        job["asset_id"],
    )
    assert [tuple(action.values()) for action in actions] == [
        ("operator", ana.organization_id, "assets.processing_error")
    ]


@pytest.mark.case("A3c.04")
async def test_a_job_that_cannot_be_requeued_says_why_and_does_not_stop_the_rest(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    ready = await ready_asset(admission, worker, ana)
    finished = await owner.fetchval("SELECT id FROM assets.processing_jobs WHERE asset_id = $1", ready)
    good = await dead_letter(owner, admission, worker, ana)
    archived = await dead_letter(owner, admission, worker, ana)
    async with acting(admission, ana):
        await admission.fetchval("SELECT assets.archive_asset($1)", archived["asset_id"])
    pruned = await dead_letter(owner, admission, worker, ana)
    await owner.execute("DELETE FROM assets.uploads WHERE asset_id = $1", pruned["asset_id"])
    erased = await dead_letter(owner, admission, worker, ana)
    await owner.execute("SELECT outcome FROM assets.erase_asset($1)", erased["asset_id"])
    theirs = await dead_letter(owner, admission, worker, bruno)
    unknown = uuid4()

    asked = [unknown, finished, archived, pruned, erased, good, theirs]
    ids = [job if isinstance(job, UUID) else job["job_id"] for job in asked]
    assert await requeue(owner, *ids, ids[-1]) == [
        ("skipped_ineligible", "unknown"),
        ("skipped_ineligible", "not_dead_lettered"),
        ("skipped_ineligible", "archived"),
        ("skipped_ineligible", "too_old"),
        ("skipped_ineligible", "state"),
        ("requeued", None),
        ("requeued", None),
    ]
    assert await requeue(owner, good["job_id"]) == [("skipped_ineligible", "not_dead_lettered")]
    assert await usage(owner, ana) == (2, 500, 1000)
    assert await usage(owner, bruno) == (1, 0, 1000)
    assert await violations(owner) == []


@pytest.mark.case("A3c.04")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [("{assets.active_assets}", "asset_limit"), ("{assets.stored_megabytes}", "storage_limit")],
)
async def test_a_plan_without_room_skips_what_would_not_fit_and_requeues_the_rest(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, limits: str, reason: str
) -> None:
    jobs = [await dead_letter(owner, admission, worker, ana, byte_size=700_000) for _ in range(2)]
    await owner.execute(
        "SELECT platform.publish_plan_version('pionero', '{}', $1::varchar[], '{1}')", limits[1:-1].split()
    )
    await owner.execute("SELECT platform.move_subscription($1, 'pionero')", ana.organization_id)

    assert await requeue(owner, *(job["job_id"] for job in jobs)) == [
        ("requeued", None),
        ("skipped_over_limit", reason),
    ]
    assert await usage(owner, ana) == (1, 0, 700_000)


@pytest.mark.case("A3c.07")
async def test_resets_both_the_attempt_count_and_the_processing_error_count_of_a_requeued_dead_letter(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    job = await dead_letter(owner, admission, worker, ana)
    row = await owner.fetchrow("SELECT attempt_count, processing_error_count FROM assets.processing_jobs")
    assert tuple(row.values()) == (5, 5)
    await requeue(owner, job["job_id"])
    again = await claim(worker)
    assert (again["job_id"], again["attempt_count"], again["processing_error_count"]) == (job["job_id"], 0, 0)
    # A whole new budget: four retries before the fifth error buries it again.
    for error in range(1, 6):
        state = await record(worker, again, "retry_processing", "assets.processing_error", minutes=0.1)
        assert state == ("pending" if error < 5 else "dead_lettered")
        if error < 5:
            await make_due(owner)
            again = await claim(worker)
    assert await requeue(owner, job["job_id"]) == [("requeued", None)]


async def test_a_dead_lettered_purge_is_requeued_whatever_its_age_and_goes_on(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await archived_asset(admission, worker, ana)
    await age_archival(owner, asset_id, 40)
    job_id = await kill_purge(owner, asset_id)
    await owner.execute("UPDATE assets.processing_jobs SET created_at = now() - interval '20 days'")
    before = await usage(owner, ana)

    assert await requeue(owner, job_id) == [("requeued", None)]

    assert await usage(owner, ana) == before
    job = await claim_purge(worker)
    assert (job["job_id"], job["attempt_count"], job["processing_error_count"]) == (job_id, 0, 0)
    assert (
        await worker.fetchval("SELECT outcome FROM assets.purge_asset_begin($1, $2)", job_id, job["lease_token"])
        == "deletable"
    )
    assert await finish(worker, job) == "purged"


async def test_a_purge_with_a_newer_open_one_stays_given_up(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await archived_asset(admission, worker, ana)
    job_ids = [await kill_purge(owner, asset_id) for _ in range(2)]
    assert await requeue(owner, *job_ids) == [("requeued", None), ("skipped_ineligible", "state")]


@pytest.mark.parametrize("count", [0, 501])
async def test_refuses_to_requeue_none_or_more_than_500(owner: Connection, count: int) -> None:
    with refused("assets_requeue_batch"):
        await requeue(owner, *(uuid4() for _ in range(count)))


async def test_a_requeue_waits_for_the_expiry_sweep(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    job = await dead_letter(owner, admission, worker, ana)
    await owner.execute("UPDATE assets.sweeps SET next_due_at = now()")
    sweeping = worker.transaction()
    await sweeping.start()
    assert await worker.fetchval("SELECT assets.begin_sweep('expire_uploads')")
    asked = asyncio.create_task(requeue(owner, job["job_id"]))
    watcher = await database.owner()
    while not await watcher.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
    ):
        await asyncio.sleep(0.01)
        assert not asked.done()
    await sweeping.commit()
    assert await asked == [("requeued", None)]


async def test_two_operators_requeue_a_job_once(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    job = await dead_letter(owner, admission, worker, ana)
    answers = await asyncio.gather(requeue(owner, job["job_id"]), requeue(await database.owner(), job["job_id"]))
    assert sorted(answers, key=repr) == [[("requeued", None)], [("skipped_ineligible", "not_dead_lettered")]]
    assert await usage(owner, ana) == (1, 0, 1000)


async def test_the_queues_reader_sees_every_kind_counted_and_every_dead_letter_newest_first(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    reader = await database.login("ninaku_processing")
    first = await dead_letter(owner, admission, worker, ana)
    second = await dead_letter(owner, admission, worker, ana)
    asset_id = await archived_asset(admission, worker, ana)
    purge = await kill_purge(owner, asset_id)
    await owner.execute(
        "UPDATE assets.uploads SET created_at = now() - interval '2 days' WHERE asset_id = $1", first["asset_id"]
    )

    rows = await reader.fetch("SELECT * FROM assets.list_dead_letters(NULL, NULL, NULL, 10)")
    assert [(row["job_id"], row["job_kind"], row["requeue_refusal"]) for row in rows] == [
        (purge, "purge_asset", None),
        (second["job_id"], "process_upload", None),
        (first["job_id"], "process_upload", "too_old"),
    ]
    assert (rows[1]["error_code"], rows[1]["attempt_count"], rows[1]["processing_error_count"]) == (
        "assets.processing_error", 5, 5,
    )  # fmt: skip
    page = await reader.fetch(
        "SELECT * FROM assets.list_dead_letters('process_upload', $1, $2, 10)",
        rows[1]["dead_lettered_at"],
        rows[1]["job_id"],
    )
    assert [row["job_id"] for row in page] == [first["job_id"]]

    states = await reader.fetch("SELECT * FROM assets.queue_state()")
    assert [
        (row["job_kind"], row["ready"], row["leased"], row["dead_letter_codes"], row["dead_letter_counts"])
        for row in states
    ] == [
        ("process_upload", 0, 0, ["assets.processing_error"], [2]),
        ("purge_asset", 0, 0, ["assets.lease_expired"], [1]),
        ("render_profile", 0, 0, [], []),
    ]


async def test_the_queues_state_tells_ready_delayed_leased_and_lapsed_jobs_apart(
    database: DatabaseUnderTest, owner: Connection, ana: Person
) -> None:
    reader = await database.login("ninaku_processing")
    await owner.execute(
        """WITH made AS (
            INSERT INTO assets.assets (id, organization_id, access_class, delivery_token)
            SELECT uuidv7(), $1, 'public', translate(substr(md5(n::text), 1, 26), '0189', 'wxyz')
            FROM generate_series(1, 10) n RETURNING id),
        numbered AS (SELECT id, row_number() OVER () AS n FROM made)
        INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, state, available_at, lease_owner,
            lease_token, lease_expires_at)
        SELECT uuidv7(), $1, id, 'process_upload', CASE WHEN n <= 7 THEN 'pending' ELSE 'leased' END,
            now() - CASE WHEN n <= 4 THEN make_interval(mins => n::integer) ELSE interval '-5 minutes' END,
            CASE WHEN n > 7 THEN 'w' END, CASE WHEN n > 7 THEN gen_random_uuid() END,
            CASE WHEN n > 9 THEN now() - interval '1 s' WHEN n > 7 THEN now() + interval '1 min' END
        FROM numbered""",
        ana.organization_id,
    )
    row = await reader.fetchrow("SELECT * FROM assets.queue_state()")
    assert (row["ready"], row["delayed"], row["leased"], row["lease_expired"]) == (4, 3, 2, 1)
    assert 240 <= (row["counted_at"] - row["oldest_ready_at"]).total_seconds() < 300


@pytest.mark.parametrize("size", [0, 502, None])
async def test_refuses_a_page_outside_1_to_501(owner: Connection, size: int | None) -> None:
    with refused("assets_page_size"):
        await owner.fetch("SELECT * FROM assets.list_dead_letters(NULL, NULL, NULL, $1)", size)
