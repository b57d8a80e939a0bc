"""The line of jobs: organizations take turns, uploads go first, nothing starves, and a long line costs nothing."""

import itertools
import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from tests.database.arrange import claim, make_due, queue_upload, record
from tests.database.test_asset_lifecycle import insert_asset
from tests.database.test_upload_tables import insert_job
from tests.support.database import Connection, Person

EVERY_KIND = ("process_upload", "purge_asset", "render_profile")


async def queue(owner: Connection, person: Person, kind: str = "purge_asset", age: str = "0") -> UUID:
    asset_id = await insert_asset(owner, person.organization_id, "failed")
    await insert_job(
        owner, person.organization_id, asset_id, job_kind=f"'{kind}'", available_at=f"now() - interval '{age}'"
    )
    return asset_id


async def queue_many(owner: Connection, person: Person, count: int, state: str = "pending") -> None:
    """Many jobs by one statement. Each needs an asset of its own: one may have one open job of a kind."""
    await owner.execute(
        """WITH made AS (
            INSERT INTO assets.assets (id, organization_id, status, failed_at, failure_code, access_class,
                delivery_token)
            SELECT uuidv7(), $1, 'failed', now(), 'x', 'public',
                translate(substr(encode(sha256(uuid_send(gen_random_uuid())), 'hex'), 1, 26), '0189', 'wxyz')
            FROM generate_series(1, $2) RETURNING id)
        INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, state, completed_at)
        SELECT uuidv7(), $1, id, 'purge_asset', $3::varchar, CASE WHEN $3 = 'completed' THEN now() END FROM made""",
        person.organization_id,
        count,
        state,
    )


async def drain(worker: Connection, kinds: Iterable[str] = EVERY_KIND) -> list[UUID]:
    served = []
    while (job := await claim(worker, tuple(kinds))) is not None:
        served.append(job["asset_id"])
    return served


async def test_organizations_take_turns_whatever_one_of_them_has_queued(
    owner: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    many = [await queue(owner, ana) for _ in range(5)]
    served = [(await claim(worker, EVERY_KIND))["asset_id"] for _ in range(2)]
    assert served == many[:2]
    few = [await queue(owner, bruno) for _ in range(2)]
    assert await drain(worker) == [many[2], few[0], many[3], few[1], many[4]]


async def test_a_single_job_waits_for_one_other_job_at_most_behind_a_thousand(
    owner: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    await queue_many(owner, ana, 1000)
    for _ in range(3):
        await claim(worker, EVERY_KIND)
    single = await queue(owner, bruno)
    assert single in [(await claim(worker, EVERY_KIND))["asset_id"] for _ in range(2)]


async def test_an_organization_that_was_just_served_does_not_pass_one_that_waits(
    owner: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    backlog = [await queue(owner, bruno) for _ in range(2)]
    first = await queue(owner, ana)
    assert [(await claim(worker, EVERY_KIND))["asset_id"] for _ in range(2)] == [backlog[0], first]
    second = await queue(owner, ana)
    assert await drain(worker) == [backlog[1], second]


async def test_an_organization_with_a_long_history_is_served_like_a_new_one(
    owner: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    await queue_many(owner, ana, 50)
    await drain(worker)
    await owner.execute(
        "UPDATE assets.processing_jobs SET state = 'completed', completed_at = now(), lease_owner = NULL,"
        " lease_token = NULL, lease_expires_at = NULL"
    )
    theirs = [await queue(owner, bruno) for _ in range(2)]
    mine = [await queue(owner, ana) for _ in range(2)]
    assert await drain(worker) == [theirs[0], mine[0], theirs[1], mine[1]]


async def test_uploads_go_before_purges_before_backfills(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    backfill = await queue(owner, ana, "render_profile", "3 minutes")
    purge = await queue(owner, ana, "purge_asset", "2 minutes")
    upload = (await queue_upload(admission, ana))["asset_id"]
    assert await drain(worker) == [upload, purge, backfill]


async def test_a_job_of_a_later_kind_that_waited_long_passes_at_every_fourth_claim(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    purges = [await queue(owner, ana, "purge_asset", "16 minutes") for _ in range(2)]
    backfill = await queue(owner, ana, "render_profile", "17 minutes")
    uploads = [(await queue_upload(admission, ana))["asset_id"] for _ in range(12)]
    served = await drain(worker)
    # The oldest of the aged first, one in each four; uploads in their order meanwhile.
    assert [asset for asset in served if asset in uploads] == uploads
    places = [served.index(asset) for asset in (backfill, *purges)]
    assert places == sorted(places)
    assert [later - earlier for earlier, later in itertools.pairwise(places)] == [4, 4]
    assert places[0] < 4


async def test_a_delayed_retry_lines_up_when_it_is_due_behind_nobody_elses_first(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    retried = await queue_upload(admission, ana)
    await record(worker, await claim(worker), "retry_storage", "assets.storage_unavailable", minutes=5)
    row = await owner.fetchrow("SELECT queue_rank, state FROM assets.processing_jobs")
    assert tuple(row.values()) == (None, "pending")
    waiting = [await queue_upload(admission, bruno) for _ in range(2)]
    await make_due(owner)
    served = await drain(worker, ["process_upload"])
    assert set(served[:2]) == {retried["asset_id"], waiting[0]["asset_id"]}
    assert served[2] == waiting[1]["asset_id"]


async def test_says_when_the_next_job_can_be_claimed(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    async def wait() -> Any:
        """Seconds until then."""
        return await worker.fetchval(
            "SELECT round(extract(epoch FROM assets.next_job_at($1) - now()))::integer", list(EVERY_KIND)
        )

    assert await wait() is None
    await queue_upload(admission, ana)
    assert await wait() <= 0
    job = await claim(worker, seconds=120)
    assert 118 <= await wait() <= 120
    await record(worker, job, "retry_storage", "assets.storage_unavailable", minutes=10)
    assert 590 <= await wait() <= 600
    await queue(owner, ana)
    assert await wait() <= 0
    assert await worker.fetchval("SELECT assets.next_job_at('{render_profile}')") is None


_JOBS = "FROM assets.processing_jobs WHERE job_kind = 'purge_asset' AND"
_PENDING = f"{_JOBS} state = 'pending' AND"
_IN_LINE = "queue_rank IS NOT NULL AND available_at <= now() ORDER BY queue_rank, available_at, id"


@pytest.mark.parametrize(
    "query",
    [
        # The head of the line, due retries, an expired lease, and the two probes of a place in line.
        f"SELECT id {_PENDING} {_IN_LINE} LIMIT 1",
        f"SELECT id {_PENDING} queue_rank IS NULL AND available_at <= now() ORDER BY available_at, id LIMIT 100",
        f"SELECT id {_JOBS} state = 'leased' AND lease_expires_at <= now() ORDER BY lease_expires_at, id LIMIT 1",
        f"SELECT max(queue_rank) {_JOBS} queue_rank IS NOT NULL",
        f"SELECT max(queue_rank) {_JOBS} organization_id = '$ORGANIZATION' AND queue_rank IS NOT NULL",
    ],
    ids=["head", "due", "expired", "kind rank", "organization rank"],
)
async def test_every_step_of_a_claim_reads_the_end_of_an_index(
    owner: Connection, ana: Person, bruno: Person, query: str
) -> None:
    await queue_many(owner, ana, 3000)
    await queue_many(owner, bruno, 3000, "completed")
    await owner.execute("ANALYZE assets.processing_jobs")
    explained = await owner.fetchval(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query.replace("$ORGANIZATION", str(ana.organization_id))
    )
    plan = json.loads(explained)[0]["Plan"]

    def nodes(node: dict[str, Any]) -> Iterable[dict[str, Any]]:
        yield node
        for child in node.get("Plans", ()):
            yield from nodes(child)

    kinds = {node["Node Type"] for node in nodes(plan)}
    assert not kinds & {"Seq Scan", "Sort", "Bitmap Heap Scan", "Incremental Sort"}, kinds
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 12
