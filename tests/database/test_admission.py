"""Reserving, completing, archiving and restoring, under the login of the service that calls (stage A1b)."""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.database.arrange import (
    acting,
    complete,
    intent,
    minutes_ahead,
    open_context,
    queue_upload,
    ready_asset,
    refused,
    reserve,
    reserve_in,
    usage,
)
from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization, add_person

MIB = 1024 * 1024


async def limit(owner: Connection, code: str, value: int | None) -> None:
    """The active Pionero version allows this much."""
    await owner.execute("UPDATE platform.plan_version_limits SET limit_value = $2 WHERE limit_code = $1", code, value)


async def counts(owner: Connection) -> list[int]:
    tables = ("assets.assets", "assets.asset_variants", "assets.uploads", "assets.processing_jobs", "audit.records")
    return [await owner.fetchval(f"SELECT count(*) FROM {table}") for table in tables]


@pytest.mark.case("A1b.01")
async def test_archives_and_restores_through_the_definer_functions_only_keeping_the_active_asset_count(
    owner: Connection, admission: Connection, library: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)

    async def call(function: str, person: Person = ana, asset: UUID = asset_id) -> str:
        async with acting(library, person):
            answer: str = await library.fetchval(f"SELECT assets.{function}($1)", asset)
            return answer

    assert (await usage(owner, ana))[0] == 1
    assert await call("restore_asset") == "not_archived"
    assert await call("archive_asset") == "archived"
    assert (await usage(owner, ana))[0] == 0
    assert await call("archive_asset") == "already_archived"
    assert (await usage(owner, ana))[0] == 0
    assert await call("restore_asset") == "restored"
    assert (await usage(owner, ana))[0] == 1
    for function in ("archive_asset", "restore_asset"):
        assert await call(function, bruno) == "not_found"
        assert await call(function, ana, uuid4()) == "not_found"
    actions = await owner.fetch(
        "SELECT action_code FROM audit.records WHERE resource_id = $1 ORDER BY recorded_at, id", asset_id
    )
    assert [row["action_code"].rpartition(".")[2] for row in actions] == ["upload_requested", "archived", "restored"]

    failed = (await reserve(admission, ana))["asset_id"]
    await owner.execute(
        "UPDATE assets.assets SET status = 'failed', failed_at = now(), failure_code = 'assets.image_corrupt'"
        " WHERE id = $1",
        failed,
    )
    before = (await usage(owner, ana))[0]
    assert await call("archive_asset", asset=failed) == "archived"
    assert (await usage(owner, ana))[0] == before  # a failed asset held no slot
    with refused("assets_status_transition"):
        await call("restore_asset", asset=failed)
    await owner.execute("UPDATE assets.assets SET status = 'purging' WHERE id = $1", failed)
    for function in ("archive_asset", "restore_asset"):
        with refused("assets_status_transition"):
            await call(function, asset=failed)


@pytest.mark.case("A1b.01")
async def test_refuses_restoring_past_30_days_or_over_the_asset_limit(
    owner: Connection, admission: Connection, library: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    async with acting(library, ana):
        await library.fetchval("SELECT assets.archive_asset($1)", asset_id)

    async def restore() -> Any:
        async with acting(library, ana):
            return await library.fetchval("SELECT assets.restore_asset($1)", asset_id)

    await owner.execute(
        "UPDATE assets.assets SET created_at = now() - interval '40 days', archived_at = now() - interval '30 days'"
    )
    with refused("assets_restoration_expired"):
        await restore()
    await owner.execute("UPDATE assets.assets SET archived_at = now() - interval '29 days 23 hours'")
    await reserve(admission, ana)
    await limit(owner, "assets.active_assets", 1)
    with refused("assets_asset_limit"):
        await restore()
    assert (await usage(owner, ana))[0] == 1
    await limit(owner, "assets.active_assets", 2)
    assert await restore() == "restored"
    assert (await usage(owner, ana))[0] == 2


@pytest.mark.case("A1b.02")
async def test_reserves_an_upload_with_its_asset_original_variant_and_reserved_bytes_and_replays_the_same_key(
    owner: Connection, admission: Connection, ana: Person
) -> None:
    wanted = intent(byte_size=2_483_211)
    created = await reserve(admission, ana, wanted)
    assert {name: value for name, value in created.items() if name not in ("created_at", "expires_at")} == {
        "outcome": "created",
        "asset_id": wanted.asset_id,
        "upload_id": wanted.upload_id,
        "upload_state": "issued",
        "request_hash": wanted.request_hash,
        "staging_object_key": f"in/{wanted.staging_token}",
        "status": "pending",
        "access_class": "public",
        "media_kind": "image",
        "source_kind": "upload",
        "display_name": "Hamburguesa",
        "upload_media_type": "image/jpeg",
        "upload_byte_size": 2_483_211,
    }
    asset = await owner.fetchrow("SELECT * FROM assets.assets WHERE id = $1", wanted.asset_id)
    assert asset["organization_id"] == ana.organization_id
    assert asset["created_by_membership_id"] == ana.membership_id
    assert (asset["delivery_token"], asset["original_filename"]) == (wanted.delivery_token, "IMG_0001.JPG")
    variant = await owner.fetchrow("SELECT * FROM assets.asset_variants WHERE asset_id = $1", wanted.asset_id)
    assert (variant["id"], variant["variant_code"], variant["status"]) == (wanted.variant_id, "original", "pending")
    assert await usage(owner, ana) == (1, 0, 2_483_211)
    audited = await owner.fetchrow("SELECT * FROM audit.records")
    assert (audited["action_code"], audited["resource_id"]) == ("assets.asset.upload_requested", wanted.asset_id)
    assert (audited["actor_id"], audited["organization_id"]) == (ana.actor_id, ana.organization_id)
    assert (audited["service"], audited["request_id"], audited["outcome"]) == ("admission", "request-1", "succeeded")
    assert (audited["permission_code"], audited["authorization_decision"]) == ("assets.media.manage", "authorized")
    assert json.loads(audited["after_attributes"]) == {
        "mediaType": "image/jpeg",
        "byteSize": 2_483_211,
        "accessClass": "public",
    }

    before = await counts(owner)
    again = await reserve(admission, ana, wanted.again(byte_size=77, request_hash="cd" * 32))
    assert again["outcome"] == "existing"
    assert [value for name, value in again.items() if name != "outcome"] == [
        value for name, value in created.items() if name != "outcome"
    ]
    assert await counts(owner) == before
    assert await usage(owner, ana) == (1, 0, 2_483_211)

    await complete(admission, ana, wanted.upload_id)
    later = await reserve(admission, ana, wanted.again())
    assert (later["outcome"], later["upload_state"], later["status"]) == ("existing", "received", "processing")


@pytest.mark.case("A1b.02")
async def test_says_in_progress_while_another_transaction_holds_the_key_and_never_for_another_organization(
    database: DatabaseUnderTest, admission: Connection, ana: Person, bruno: Person
) -> None:
    wanted = intent()
    second = await database.login("ninaku_admission")
    async with acting(admission, ana):
        assert (await reserve_in(admission, wanted))["outcome"] == "created"
        held = await reserve(second, ana, wanted.again())
        assert held["outcome"] == "in_progress"
        assert set(held.values()) == {"in_progress", None}
        assert (await reserve(second, bruno, wanted.again()))["outcome"] == "created"
    assert (await reserve(second, ana, wanted.again()))["outcome"] == "existing"


async def test_a_list_of_access_classes_that_is_missing_or_has_a_hole_allows_nothing(
    admission: Connection, ana: Person
) -> None:
    for access_class, allowed in (("sensitive", None), ("public", None), ("sensitive", ["public", None])):
        with refused("assets_access_class_unavailable"):
            async with acting(admission, ana):
                await admission.fetchrow(
                    "SELECT * FROM assets.reserve_upload(uuidv7(), uuidv7(), uuidv7(), repeat('a', 26),"
                    " repeat('b', 26), 'image/jpeg', 5, $1, NULL, NULL, uuidv7(), repeat('0', 64),"
                    " now() + interval '15 minutes', $2)",
                    access_class,
                    allowed,
                )


@pytest.mark.case("A1b.03")
async def test_refuses_a_private_access_class_the_asset_limit_the_storage_limit_and_a_21st_open_upload(
    owner: Connection, admission: Connection, ana: Person
) -> None:
    for access_class in ("private", "sensitive"):
        with refused("assets_access_class_unavailable"):
            await reserve(admission, ana, intent(access_class=access_class))
    everything = ("public", "private", "sensitive")
    assert (await reserve(admission, ana, intent(access_class="private", allowed=everything)))["outcome"] == "created"

    await limit(owner, "assets.active_assets", 1)
    with refused("assets_asset_limit"):
        await reserve(admission, ana)
    await limit(owner, "assets.active_assets", 100)

    # 1,000 bytes are reserved; stored and reserved and asked for together may reach the limit, not exceed it.
    await limit(owner, "assets.stored_megabytes", 3)
    await owner.execute("UPDATE assets.organization_usage SET stored_bytes = $1", MIB)
    with refused("assets_storage_limit"):
        await reserve(admission, ana, intent(byte_size=2 * MIB - 1000 + 1))
    await reserve(admission, ana, intent(byte_size=2 * MIB - 1000))
    await limit(owner, "assets.stored_megabytes", 10240)

    for _ in range(18):
        await reserve(admission, ana)
    with refused("assets_open_uploads_limit"):
        await reserve(admission, ana)
    before = await counts(owner)
    assert (before[2], (await usage(owner, ana))[0]) == (20, 20)
    # A received upload is still open; an expired or settled one makes room.
    upload_id = await owner.fetchval("SELECT id FROM assets.uploads WHERE declared_byte_size = 1000 LIMIT 1")
    await complete(admission, ana, upload_id)
    with refused("assets_open_uploads_limit"):
        await reserve(admission, ana)
    await owner.execute("UPDATE assets.uploads SET state = 'verified', settled_at = now() WHERE id = $1", upload_id)
    assert (await reserve(admission, ana))["outcome"] == "created"


@pytest.mark.case("A1b.04")
async def test_treats_a_missing_or_unlimited_plan_limit_as_no_ceiling(
    owner: Connection, admission: Connection, ana: Person
) -> None:
    await owner.execute(
        "UPDATE assets.organization_usage SET active_asset_count = 1000000, stored_bytes = 1::bigint<<50"
    )
    with refused("assets_asset_limit"):
        await reserve(admission, ana)
    await limit(owner, "assets.active_assets", None)
    with refused("assets_storage_limit"):
        await reserve(admission, ana)
    await owner.execute("DELETE FROM platform.plan_version_limits WHERE limit_code = 'assets.stored_megabytes'")
    assert (await reserve(admission, ana))["outcome"] == "created"

    planless = await add_person(owner, await add_organization(owner, "without a plan", plan=None))
    await owner.execute("UPDATE assets.organization_usage SET active_asset_count = 1000000")
    assert (await reserve(admission, planless))["outcome"] == "created"


@pytest.mark.case("A1b.04")
async def test_a_lapsed_subscription_keeps_its_limits(owner: Connection, admission: Connection, ana: Person) -> None:
    await limit(owner, "assets.active_assets", 0)
    await owner.fetchval("SELECT platform.end_subscription($1, now())", ana.organization_id)
    with refused("assets_asset_limit"):
        await reserve(admission, ana)


@pytest.mark.case("A1b.05")
async def test_completes_an_issued_upload_into_processing_with_one_queued_job(
    owner: Connection, admission: Connection, ana: Person
) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    listener = await _listening(owner)
    reserved = await reserve(admission, ana)
    completed = await complete(admission, ana, reserved["upload_id"], trace)
    assert tuple(completed.values()) == ("completed", reserved["asset_id"])
    upload = await owner.fetchrow("SELECT * FROM assets.uploads")
    assert (upload["state"], upload["received_at"] is not None, upload["settled_at"]) == ("received", True, None)
    assert await owner.fetchval("SELECT status FROM assets.assets") == "processing"
    assert await owner.fetchval("SELECT status FROM assets.asset_variants") == "processing"
    jobs = await owner.fetch("SELECT * FROM assets.processing_jobs")
    assert len(jobs) == 1
    assert (jobs[0]["job_kind"], jobs[0]["state"], jobs[0]["asset_id"]) == (
        "process_upload",
        "pending",
        reserved["asset_id"],
    )
    assert (jobs[0]["organization_id"], jobs[0]["trace_context"]) == (ana.organization_id, trace)
    assert await asyncio.wait_for(listener.get(), 10) == ("assets_processing_jobs", "")
    assert await usage(owner, ana) == (1, 0, 1000)


async def _listening(connection: Connection) -> "asyncio.Queue[tuple[str, str]]":
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    await connection.add_listener(
        "assets_processing_jobs", lambda _connection, _pid, channel, payload: heard.put_nowait((channel, payload))
    )
    return heard


@pytest.mark.case("A1b.05")
async def test_answers_repeated_expired_rejected_and_foreign_completions_without_writing(
    owner: Connection, admission: Connection, ana: Person, bruno: Person
) -> None:
    async def state() -> list[Any]:
        tables = ("assets", "asset_variants", "uploads", "processing_jobs", "organization_usage")
        return [await owner.fetch(f"SELECT *, xmin FROM assets.{table} ORDER BY 1") for table in tables]

    done = await queue_upload(admission, ana)
    issued = await reserve(admission, ana)
    late = await reserve(admission, ana)
    await owner.execute(
        "UPDATE assets.uploads SET created_at = now() - interval '1 hour', expires_at = now() WHERE id = $1",
        late["upload_id"],
    )
    swept = await reserve(admission, ana)
    await owner.execute(
        "UPDATE assets.uploads SET state = 'expired', settled_at = now() WHERE id = $1", swept["upload_id"]
    )
    rejected = await reserve(admission, ana)
    await owner.execute(
        "UPDATE assets.uploads SET state = 'rejected', received_at = now(), settled_at = now(),"
        " rejection_code = 'assets.image_corrupt' WHERE id = $1",
        rejected["upload_id"],
    )
    verified = await queue_upload(admission, ana)
    await owner.execute(
        "UPDATE assets.uploads SET state = 'verified', settled_at = now() WHERE id = $1", verified["upload_id"]
    )
    before = await state()
    for upload, person, outcome in (
        (done, ana, "already_received"),
        (verified, ana, "already_received"),
        (late, ana, "expired"),
        (swept, ana, "expired"),
        (rejected, ana, "rejected"),
        (issued, bruno, "not_found"),
        (done, bruno, "not_found"),
    ):
        answer = await complete(admission, person, upload["upload_id"])
        assert answer["outcome"] == outcome
        assert answer["asset_id"] == (None if outcome == "not_found" else upload["asset_id"])
    assert (await complete(admission, ana, uuid4()))["outcome"] == "not_found"
    assert await state() == before


@pytest.mark.case("A1b.05")
async def test_twenty_parallel_completions_of_one_upload_queue_one_job(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, ana: Person
) -> None:
    reserved = await reserve(admission, ana)
    connections = [await database.login("ninaku_admission") for _ in range(20)]
    answers = await asyncio.gather(*(complete(each, ana, reserved["upload_id"]) for each in connections))
    assert sorted(answer["outcome"] for answer in answers) == ["already_received"] * 19 + ["completed"]
    assert await owner.fetchval("SELECT count(*) FROM assets.processing_jobs") == 1


@pytest.mark.case("A1b.06")
async def test_takes_the_organization_only_from_the_tenant_context_never_from_a_parameter(
    owner: Connection, admission: Connection, ana: Person, bruno: Person
) -> None:
    calls = (
        "SELECT assets.complete_upload(gen_random_uuid(), NULL)",
        "SELECT assets.archive_asset(gen_random_uuid())",
        "SELECT assets.restore_asset(gen_random_uuid())",
        "SELECT assets.rename_asset(gen_random_uuid(), 'name')",
        "SELECT assets.asset_in_context(gen_random_uuid())",
    )
    for call in calls:
        with refused("tenant_context_missing", "42501"):
            await admission.fetch(call)
    with refused("tenant_context_missing", "42501"):
        await reserve_in(admission, intent())

    wanted = intent()
    mine = await reserve(admission, ana, wanted)
    theirs = await reserve(admission, bruno, wanted.again())  # the same key, in another organization
    assert theirs["outcome"] == "created"
    assert theirs["upload_id"] != mine["upload_id"]
    owners = await owner.fetch("SELECT id, organization_id FROM assets.uploads")
    assert dict(tuple(row.values()) for row in owners) == {
        mine["upload_id"]: ana.organization_id,
        theirs["upload_id"]: bruno.organization_id,
    }
    parameters = await owner.fetch(
        """SELECT p.proname FROM pg_proc p, unnest(p.proargnames) AS a (name)
        WHERE p.pronamespace = 'assets'::regnamespace AND a.name = 'p_organization_id'
            AND has_function_privilege('ninaku_runtime', p.oid, 'EXECUTE')"""
    )
    assert {row["proname"] for row in parameters} == {"read_asset"}  # which checks it against the session itself
    # A context of one organization gives nothing of another.
    async with acting(admission, bruno):
        assert (await admission.fetchrow("SELECT * FROM assets.asset_in_context($1)", mine["asset_id"]))[
            "outcome"
        ] == "not_found"
        assert await admission.fetchval("SELECT assets.rename_asset($1, 'x')", mine["asset_id"]) == "not_found"


@pytest.mark.case("A1b.07")
async def test_admits_exactly_one_of_two_concurrent_reservations_at_the_asset_limit_and_serializes_them(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, ana: Person
) -> None:
    await reserve(admission, ana)
    await limit(owner, "assets.active_assets", 2)
    second = await database.login("ninaku_admission")
    async with acting(admission, ana):
        assert (await reserve_in(admission, intent()))["outcome"] == "created"
        waiting = asyncio.create_task(reserve(second, ana))
        await _until_blocked(owner, second)
        assert not waiting.done()
    with refused("assets_asset_limit"):
        await waiting
    assert await usage(owner, ana) == (2, 0, 2000)
    assert await owner.fetchval("SELECT count(*) FROM assets.uploads") == 2


async def _until_blocked(owner: Connection, connection: Connection) -> None:
    """Returns once the connection waits for another transaction."""
    pid = connection.get_server_pid()
    for _ in range(1000):
        if await owner.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid):
            return
        await asyncio.sleep(0.01)
    pytest.fail("the second reservation never waited for the first")


@pytest.mark.case("A1b.07")
async def test_a_reservation_rolled_back_leaves_room_for_the_one_that_waited(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, ana: Person
) -> None:
    await limit(owner, "assets.active_assets", 1)
    second = await database.login("ninaku_admission")
    transaction = admission.transaction()
    await transaction.start()
    await open_context(admission, ana)
    await reserve_in(admission, intent())
    waiting = asyncio.create_task(reserve(second, ana))
    await _until_blocked(owner, second)
    await transaction.rollback()
    assert (await waiting)["outcome"] == "created"
    assert await usage(owner, ana) == (1, 0, 1000)


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_refuses_to_write_outside_read_committed(admission: Connection, ana: Person, isolation: str) -> None:
    for call in (
        "SELECT assets.complete_upload(gen_random_uuid(), NULL)",
        "SELECT assets.archive_asset(gen_random_uuid())",
        "SELECT assets.restore_asset(gen_random_uuid())",
        "SELECT assets.rename_asset(gen_random_uuid(), 'name')",
    ):
        with refused("assets_admission_isolation"):
            async with admission.transaction(isolation=isolation):
                await open_context(admission, ana)
                await admission.fetch(call)
    with refused("assets_admission_isolation"):
        async with admission.transaction(isolation=isolation):
            await open_context(admission, ana)
            await reserve_in(admission, intent())


async def test_refuses_a_request_that_no_table_accepts_and_leaves_nothing_reserved(
    owner: Connection, admission: Connection, ana: Person
) -> None:
    for constraint, changes in (
        ("uploads_media_type_chk", {"media_type": "image/heic"}),
        ("uploads_byte_size_chk", {"byte_size": 10 * MIB + 1}),
        ("assets_display_name_chk", {"display_name": "a\x00b".replace("\x00", "\x01")}),
        ("uploads_request_hash_chk", {"request_hash": "x"}),
        ("uploads_expiry_chk", {"expires_at": minutes_ahead(-1)}),
        ("assets_delivery_token_chk", {"delivery_token": "UPPER" * 5 + "a"}),
    ):
        with refused(constraint):
            await reserve(admission, ana, intent(**changes))
    assert await usage(owner, ana) == (0, 0, 0)
    assert await counts(owner) == [0, 0, 0, 0, 0]
