"""Uploads, jobs and usage as rows (stage A1a-2)."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from database import migrate
from tests.database.arrange import acting, denied, refused, reserve, token, usage
from tests.database.test_asset_lifecycle import insert_asset
from tests.support.database import PASSWORDS, Connection, DatabaseUnderTest, Person, add_organization


async def insert_upload(owner: Connection, organization_id: UUID, **changes: Any) -> UUID:
    """Raw SQL per changed column: an expression, so that times can be wrong in every way."""
    asset_id = await insert_asset(owner, organization_id)
    columns = {
        "id": "uuidv7()",
        "organization_id": f"'{organization_id}'",
        "asset_id": f"'{asset_id}'",
        "staging_provider_id": "(SELECT id FROM assets.storage_providers WHERE code = 's3-private')",
        "staging_object_key": f"'in/{token()}'",
        "declared_media_type": "'image/png'",
        "declared_byte_size": "10485760",
        "expires_at": "now() + interval '15 minutes'",
        "creation_idempotency_key": f"'{uuid4()}'",
        "creation_request_hash": f"'{'0' * 64}'",
        **changes,
    }
    await owner.execute(f"INSERT INTO assets.uploads ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")
    return asset_id


async def insert_job(owner: Connection, organization_id: UUID, asset_id: UUID, **changes: Any) -> None:
    columns = {
        "id": "uuidv7()",
        "organization_id": f"'{organization_id}'",
        "asset_id": f"'{asset_id}'",
        "job_kind": "'process_upload'",
        **changes,
    }
    await owner.execute(
        f"INSERT INTO assets.processing_jobs ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"
    )


@pytest.mark.case("A1a-2.01")
async def test_creates_a_usage_row_for_every_new_organization_and_backfills_the_existing_ones_exactly_once(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, ana: Person
) -> None:
    await reserve(admission, ana)
    before = await owner.fetchrow(
        "SELECT * FROM assets.organization_usage WHERE organization_id = $1", ana.organization_id
    )
    assert (before["active_asset_count"], before["reserved_bytes"]) == (1, 1000)
    older = await add_organization(owner, "from before usage was counted")
    await owner.execute("DELETE FROM assets.organization_usage WHERE organization_id = $1", older)

    for _ in range(2):  # the seeds run at every migration
        await migrate.migrate(database.dsn())
        rows = await owner.fetch("SELECT organization_id FROM assets.organization_usage")
        assert sorted(row["organization_id"] for row in rows) == sorted({ana.organization_id, older})
        assert before == await owner.fetchrow(
            "SELECT * FROM assets.organization_usage WHERE organization_id = $1", ana.organization_id
        )


@pytest.mark.case("A1a-2.01")
async def test_a_usage_row_that_exists_is_left_alone_by_the_organization_trigger(owner: Connection) -> None:
    # The row of an organization that is inserted a second time (a restored backup) keeps its counters.
    organization_id = await add_organization(owner)
    await owner.execute("ALTER TABLE assets.organization_usage DROP CONSTRAINT organization_usage_organization_id_fkey")
    await owner.execute("UPDATE assets.organization_usage SET stored_bytes = 7, updated_at = '2020-01-01'")
    await owner.execute("DELETE FROM platform.subscriptions")
    await owner.execute("DELETE FROM organization.organizations")
    await owner.execute("INSERT INTO organization.organizations (id, name) VALUES ($1, 'again')", organization_id)
    kept = await owner.fetchrow("SELECT stored_bytes, updated_at::date::text FROM assets.organization_usage")
    assert tuple(kept.values()) == (7, "2020-01-01")


@pytest.mark.case("A1a-2.02")
async def test_refuses_an_upload_whose_state_and_timestamps_disagree_a_staging_key_outside_in_and_a_size_over_10_mib(
    owner: Connection, ana: Person
) -> None:
    now = "now()"
    code = "'assets.image_corrupt'"
    for changes in (
        {"received_at": now},
        {"settled_at": now},
        {"rejection_code": code},
        {"state": "'received'"},
        {"state": "'received'", "received_at": now, "settled_at": now},
        {"state": "'received'", "received_at": now, "rejection_code": code},
        {"state": "'verified'", "received_at": now},
        {"state": "'verified'", "settled_at": now},
        {"state": "'verified'", "received_at": now, "settled_at": now, "rejection_code": code},
        {"state": "'rejected'", "received_at": now, "settled_at": now},
        {"state": "'rejected'", "received_at": now, "rejection_code": code},
        {"state": "'expired'"},
        {"state": "'expired'", "received_at": now, "settled_at": now},
        {"state": "'expired'", "settled_at": now, "rejection_code": code},
    ):
        with refused("uploads_state_shape_chk"):
            await insert_upload(owner, ana.organization_id, **changes)
    with refused("uploads_state_chk"):
        await insert_upload(owner, ana.organization_id, state="'lost'")
    for key in ("m/" + "a" * 26, "in/" + "a" * 25, "in/" + "A" * 26, "in/" + "a" * 26 + "/x", "/in/" + "a" * 26):
        with refused("uploads_staging_key_chk"):
            await insert_upload(owner, ana.organization_id, staging_object_key=f"'{key}'")
    for size in (0, 10_485_761):
        with refused("uploads_byte_size_chk"):
            await insert_upload(owner, ana.organization_id, declared_byte_size=str(size))
    for media_type in ("image/gif", "image/heic", "image/svg+xml", "IMAGE/JPEG"):
        with refused("uploads_media_type_chk"):
            await insert_upload(owner, ana.organization_id, declared_media_type=f"'{media_type}'")
    with refused("uploads_expiry_chk"):
        await insert_upload(owner, ana.organization_id, expires_at=now)

    for accepted in (
        {},
        {"state": "'received'", "received_at": now},
        {"state": "'verified'", "received_at": now, "settled_at": now},
        {"state": "'rejected'", "received_at": now, "settled_at": now, "rejection_code": code},
        {"state": "'rejected'", "settled_at": now, "rejection_code": code},
        {"state": "'expired'", "settled_at": now},
    ):
        await insert_upload(owner, ana.organization_id, **accepted)


@pytest.mark.case("A1a-2.03")
async def test_refuses_a_second_open_job_of_the_same_kind_for_one_asset_and_a_leased_job_without_its_lease(
    owner: Connection, ana: Person
) -> None:
    organization_id = ana.organization_id
    asset_id = await insert_asset(owner, organization_id)
    lease = {"lease_owner": "'worker'", "lease_token": "uuidv7()", "lease_expires_at": "now()"}
    await insert_job(owner, organization_id, asset_id)
    with refused("processing_jobs_one_open_uq", "23505"):
        await insert_job(owner, organization_id, asset_id)
    with refused("processing_jobs_one_open_uq", "23505"):
        await insert_job(owner, organization_id, asset_id, state="'leased'", **lease)
    await insert_job(owner, organization_id, asset_id, job_kind="'purge_asset'")  # another kind may be open
    await insert_job(owner, organization_id, asset_id, state="'completed'", completed_at="now()")  # and any number done
    await insert_job(owner, organization_id, asset_id, state="'dead_lettered'")

    other = await insert_asset(owner, organization_id)
    for missing in lease:
        partial = {name: value for name, value in lease.items() if name != missing}
        with refused("processing_jobs_lease_shape_chk"):
            await insert_job(owner, organization_id, other, state="'leased'", **partial)
    for state in ("pending", "completed", "dead_lettered"):
        done = {"completed_at": "now()"} if state == "completed" else {}
        with refused("processing_jobs_lease_shape_chk"):
            await insert_job(owner, organization_id, other, state=f"'{state}'", **lease, **done)
    with refused("processing_jobs_lease_shape_chk"):
        await insert_job(owner, organization_id, other, state="'completed'")
    with refused("processing_jobs_kind_chk"):
        await insert_job(owner, organization_id, other, job_kind="'generate_image'")
    with refused("processing_jobs_processing_errors_chk"):
        await insert_job(owner, organization_id, other, processing_error_count="-1")
    await insert_job(owner, organization_id, other, state="'leased'", **lease)


@pytest.mark.case("A1a-2.04")
async def test_hides_another_organizations_uploads_and_usage_from_the_runtime_and_gives_it_no_access_to_processing_jobs(
    owner: Connection, admission: Connection, ana: Person, bruno: Person
) -> None:
    mine = await reserve(admission, ana)
    await reserve(admission, bruno)
    async with acting(admission, ana):
        assert [row["id"] for row in await admission.fetch("SELECT id FROM assets.uploads")] == [mine["upload_id"]]
        seen = await admission.fetch("SELECT organization_id FROM assets.organization_usage")
        assert [row["organization_id"] for row in seen] == [ana.organization_id]
    for table in ("uploads", "organization_usage"):
        assert await admission.fetchval(f"SELECT count(*) FROM assets.{table}") == 0
    for table in ("processing_jobs", "storage_objects", "sweeps"):
        with denied():
            async with acting(admission, ana):
                await admission.fetch(f"SELECT * FROM assets.{table}")
    protected = await owner.fetch(
        "SELECT relname FROM pg_class WHERE relrowsecurity AND relnamespace = 'assets'::regnamespace"
    )
    assert {row["relname"] for row in protected} == {
        "assets",
        "asset_variants",
        "storage_objects",
        "uploads",
        "processing_jobs",
        "organization_usage",
        "asset_claims",
        "purge_receipts",
    }
    written = await owner.fetch("SELECT polname FROM pg_policy WHERE polcmd <> 'r'")
    assert written == []


@pytest.mark.case("A1a-2.05")
@pytest.mark.parametrize("login", sorted(set(PASSWORDS) - {migrate.MIGRATOR}))
async def test_refuses_any_runtime_insert_update_or_delete_on_uploads_processing_jobs_and_usage(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, ana: Person, login: str
) -> None:
    await reserve(admission, ana)
    connection = await database.login(login)
    for table, column in (
        ("uploads", "state"),
        ("processing_jobs", "state"),
        ("organization_usage", "stored_bytes"),
    ):
        for statement in (
            f"INSERT INTO assets.{table} DEFAULT VALUES",
            f"UPDATE assets.{table} SET {column} = DEFAULT",
            f"DELETE FROM assets.{table}",
            f"TRUNCATE assets.{table} CASCADE",
        ):
            with denied():
                await connection.execute(statement)
    assert await usage(owner, ana) == (1, 0, 1000)
