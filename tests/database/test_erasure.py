"""Erasing an asset on request: whatever its state, at once, with a receipt (DESIGN §9)."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.database.arrange import (
    acting,
    claim,
    complete,
    queue_upload,
    ready_asset,
    record,
    record_ready,
    refused,
    reserve,
    usage,
)
from tests.database.failure import (
    archived_asset,
    begin,
    claim_purge,
    dead_letter,
    everything,
    finish,
    queue_purge,
    record_claim,
    violations,
)
from tests.database.test_queue_order import queue_many
from tests.support.database import Connection, DatabaseUnderTest, Person

EVERY_KIND = ("process_upload", "purge_asset", "render_profile")


async def erase(owner: Connection, asset_id: UUID, detach: bool = False) -> Any:
    return await owner.fetchrow("SELECT * FROM assets.erase_asset($1, $2)", asset_id, detach)


async def purge(worker: Connection) -> None:
    job = await claim_purge(worker)
    assert (await begin(worker, job))["outcome"] == "deletable"
    assert await finish(worker, job) == "purged"


async def test_a_ready_asset_is_archived_purging_and_out_of_the_count_from_that_moment(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    answer = await erase(owner, asset_id)
    assert (answer["outcome"], answer["organization_id"]) == ("queued", ana.organization_id)
    row = await owner.fetchrow("SELECT status, archived_at IS NOT NULL FROM assets.assets")
    assert tuple(row.values()) == ("purging", True)
    assert await usage(owner, ana) == (0, 500, 0)
    assert await violations(owner) == []
    with refused("assets_status_transition"):
        async with acting(admission, ana):
            await admission.fetchval("SELECT assets.restore_asset($1)", asset_id)

    await purge(worker)

    assert await usage(owner, ana) == (0, 0, 0)
    receipt = await owner.fetchrow("SELECT * FROM assets.read_purge_receipt($1)", asset_id)
    assert (len(receipt["object_keys"]), receipt["stored_bytes"], receipt["audit_records"]) == (5, 500, 3)
    assert (await erase(owner, asset_id))["outcome"] == "already_purged"
    assert await violations(owner, settled=True) == []
    told = await owner.fetchrow(
        "SELECT service, actor_id, before_attributes->>'status' FROM audit.records"
        " WHERE action_code = 'assets.asset.erasure_requested'"
    )
    assert tuple(told.values()) == ("operator", None, "ready")


@pytest.mark.parametrize("state", ["pending", "processing", "leased", "failed", "dead lettered", "archived"])
async def test_unfinished_work_fails_first_and_whoever_holds_it_finds_its_lease_gone(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, state: str
) -> None:
    job = reserved = None
    if state == "archived":
        asset_id = await archived_asset(admission, worker, ana)
    elif state == "dead lettered":
        asset_id = (await dead_letter(owner, admission, worker, ana))["asset_id"]
    else:
        reserved = await reserve(admission, ana)
        asset_id = reserved["asset_id"]
        if state != "pending":
            await complete(admission, ana, reserved["upload_id"])
        if state in ("leased", "failed"):
            job = await claim(worker)
        if state == "failed":
            await record(worker, job, "failed_permanent", "assets.image_corrupt")
    assert (await erase(owner, asset_id))["outcome"] == "queued"
    assert await violations(owner) == []
    active, _, reserved_bytes = await usage(owner, ana)
    assert (active, reserved_bytes) == (0, 0)
    if state in ("pending", "processing", "leased"):
        row = await owner.fetchrow(
            "SELECT a.failure_code, u.state, u.rejection_code FROM assets.assets a"
            " JOIN assets.uploads u ON u.asset_id = a.id"
        )
        assert tuple(row.values()) == ("assets.erased", "rejected", "assets.erased")
    if state == "leased":
        with refused("assets_job_lease_lost"):
            await record_ready(worker, job)
        with refused("assets_job_lease_lost"):
            await record(worker, job, "retry_storage", "assets.storage_unavailable", minutes=1)
    if state == "pending" and reserved is not None:
        assert (await complete(admission, ana, reserved["upload_id"]))["outcome"] == "rejected"
    assert await claim(worker) is None
    await purge(worker)
    assert await violations(owner, settled=True) == []
    assert await usage(owner, ana) == (0, 0, 0)


async def test_a_claimed_asset_answers_referenced_and_by_whom_unless_its_claims_are_detached(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    for reference in ("item-2", "item-1"):
        await record_claim(owner, ana, asset_id, reference)
    before = await everything(owner)

    answer = await erase(owner, asset_id)

    assert (answer["outcome"], answer["claim_consumers"], answer["claim_references"]) == (
        "referenced", ["catalog", "catalog"], ["item-1", "item-2"],
    )  # fmt: skip
    assert await everything(owner) == before

    answer = await erase(owner, asset_id, detach=True)
    assert (answer["outcome"], answer["claim_references"]) == ("queued", ["item-1", "item-2"])
    assert await owner.fetchval("SELECT count(*) FROM assets.asset_claims") == 0
    await purge(worker)


async def test_a_reference_that_is_no_claim_refuses_the_erasure_and_leaves_everything(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await owner.execute("CREATE TABLE public.consumer (asset_id uuid REFERENCES assets.assets (id))")
    asset_id = await ready_asset(admission, worker, ana)
    await record_claim(owner, ana, asset_id)
    await owner.execute("INSERT INTO public.consumer VALUES ($1)", asset_id)
    before = await everything(owner)
    with refused("assets_asset_referenced", "23503"):
        await erase(owner, asset_id, detach=True)
    assert await everything(owner) == before


async def test_an_erasure_goes_before_every_other_purge_and_passes_uploads_at_the_fourth_claim(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    await queue_many(owner, bruno, 20)
    uploads = [(await queue_upload(admission, bruno))["asset_id"] for _ in range(8)]
    await erase(owner, asset_id)
    served = [(await claim(worker, EVERY_KIND))["asset_id"] for _ in range(4)]
    assert asset_id in served
    assert set(served) - {asset_id} <= set(uploads)


async def test_an_erasure_of_an_asset_whose_purge_waits_moves_it_forward_and_repeating_it_queues_nothing(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    others = [await archived_asset(admission, worker, ana) for _ in range(2)]
    asset_id = await archived_asset(admission, worker, ana)
    for each in (*others, asset_id):
        await queue_purge(owner, each)
    await owner.execute(
        "UPDATE assets.processing_jobs SET available_at = now() + interval '10 minutes', queue_rank = NULL"
        " WHERE asset_id = $1 AND state = 'pending'",
        asset_id,
    )
    first, second = await erase(owner, asset_id), await erase(owner, asset_id)
    assert first["job_id"] == second["job_id"]
    job = await claim_purge(worker)
    assert job["job_id"] == first["job_id"]
    assert (await erase(owner, asset_id))["job_id"] == job["job_id"]  # it runs already
    assert await owner.fetchval(
        "SELECT count(*) FROM audit.records WHERE action_code = 'assets.asset.erasure_requested'"
    ) == 1  # fmt: skip
    assert (await begin(worker, job))["outcome"] == "deletable"
    assert await finish(worker, job) == "purged"


async def test_another_organization_that_joins_the_line_does_not_pass_it_because_of_an_erasure(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    await queue_many(owner, ana, 4)
    for _ in range(2):
        await claim_purge(worker)
    waiting = await owner.fetchval(
        "SELECT asset_id FROM assets.processing_jobs WHERE state = 'pending' ORDER BY queue_rank LIMIT 1"
    )
    await erase(owner, asset_id)
    late = await archived_asset(admission, worker, bruno)
    await queue_purge(owner, late)
    served = [(await claim_purge(worker))["asset_id"] for _ in range(3)]
    assert served == [asset_id, waiting, late]


async def test_an_erasure_wakes_the_workers(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await archived_asset(admission, worker, ana)
    await queue_purge(owner, asset_id)
    listener, heard = await database.login("ninaku_processing_worker"), asyncio.Event()
    await listener.add_listener("assets_processing_jobs", lambda *_: heard.set())
    await erase(owner, asset_id)
    await asyncio.wait_for(heard.wait(), 10)


async def test_an_id_that_never_was_is_not_found(owner: Connection) -> None:
    answer = await erase(owner, uuid4())
    assert (answer["outcome"], answer["job_id"]) == ("not_found", None)
