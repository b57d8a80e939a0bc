"""Assets and their variants as rows: what no statement may do to them, whoever runs it (stage A1a-1)."""

import itertools
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.database.arrange import PROFILE_1, acting, denied, ready_asset, refused, reserve, token
from tests.support.database import Connection, DatabaseUnderTest, Person

STATUSES = ("pending", "processing", "ready", "failed", "purging")
ALLOWED = {
    ("pending", "processing"),
    ("pending", "failed"),
    ("processing", "ready"),
    ("processing", "failed"),
    ("failed", "processing"),
    ("ready", "purging"),
    ("failed", "purging"),
}


async def insert_asset(owner: Connection, organization_id: UUID, status: str = "pending", **columns: Any) -> UUID:
    new_id = uuid4()
    values: dict[str, Any] = {
        "id": new_id,
        "organization_id": organization_id,
        "status": status,
        "access_class": "public",
        "delivery_token": token(),
        **columns,
    }
    names = ", ".join(values)
    places = ", ".join(f"${place}" for place in range(1, len(values) + 1))
    times = {"ready": "ready_at", "failed": "failed_at"}
    if status in times:
        names, places = f"{names}, {times[status]}", f"{places}, now()"
    if status == "failed":
        names, places = f"{names}, failure_code", f"{places}, 'assets.image_corrupt'"
    await owner.execute(f"INSERT INTO assets.assets ({names}) VALUES ({places})", *values.values())
    return new_id


async def insert_variant(owner: Connection, asset_id: UUID, organization_id: UUID, code: str, **columns: Any) -> UUID:
    new_id = uuid4()
    values: dict[str, Any] = {
        "id": new_id,
        "organization_id": organization_id,
        "asset_id": asset_id,
        "variant_code": code,
        "status": "ready",
        "media_type": "image/webp",
        "byte_size": 10,
        "checksum_sha256": bytes(32),
        "width": 1,
        "height": 1,
        **columns,
    }
    places = ", ".join(f"${place}" for place in range(1, len(values) + 1))
    times = {"ready": "ready_at", "failed": "failed_at"}
    moment = times.get(str(values["status"]))
    names = ", ".join(values) + (f", {moment}" if moment else "")
    await owner.execute(
        f"INSERT INTO assets.asset_variants ({names}) VALUES ({places}{', now()' if moment else ''})", *values.values()
    )
    return new_id


async def move(owner: Connection, asset_id: UUID, status: str) -> None:
    """Sets the status with the times and codes that belong to it."""
    await owner.execute(
        """UPDATE assets.assets SET status = $2::varchar,
            ready_at = CASE WHEN $2 = 'ready' THEN now() END,
            failed_at = CASE WHEN $2 = 'failed' THEN now() END,
            failure_code = CASE WHEN $2 = 'failed' THEN 'assets.image_corrupt' END
        WHERE id = $1""",
        asset_id,
        status,
    )


@pytest.mark.case("A1a-1.01")
async def test_refuses_an_asset_status_transition_outside_the_allowed_table_and_never_lets_purging_change(
    owner: Connection, ana: Person
) -> None:
    for before, after in itertools.product(STATUSES, STATUSES):
        transaction = owner.transaction()
        await transaction.start()
        asset_id = await insert_asset(owner, ana.organization_id, before)
        if before == after or (before, after) in ALLOWED:
            await move(owner, asset_id, after)
            assert await owner.fetchval("SELECT status FROM assets.assets WHERE id = $1", asset_id) == after
        else:
            with refused("assets_status_transition"):
                await move(owner, asset_id, after)
        await transaction.rollback()

    purging = await insert_asset(owner, ana.organization_id, "purging")
    with refused("assets_status_transition"):
        await owner.execute("UPDATE assets.assets SET archived_at = now() WHERE id = $1", purging)


@pytest.mark.case("A1a-1.02")
async def test_refuses_changing_the_access_class_of_an_asset_after_creation(owner: Connection, ana: Person) -> None:
    asset_id = await insert_asset(owner, ana.organization_id)
    with refused("assets_access_class_immutable"):
        await owner.execute("UPDATE assets.assets SET access_class = 'private' WHERE id = $1", asset_id)
    await owner.execute("UPDATE assets.assets SET access_class = access_class WHERE id = $1", asset_id)
    with refused("assets_access_class_chk"):
        await insert_asset(owner, ana.organization_id, access_class="secret")


@pytest.mark.case("A1a-1.03")
@pytest.mark.parametrize("missing", ["original", *PROFILE_1])
async def test_refuses_a_ready_asset_at_commit_when_one_variant_is_not_ready(
    owner: Connection, ana: Person, missing: str
) -> None:
    codes = ("original", *PROFILE_1)

    async def attempt(left_out: str | None, **unfinished: Any) -> UUID:
        async with owner.transaction():
            asset_id = await insert_asset(owner, ana.organization_id, "ready")
            for code in codes:
                if code != left_out:
                    await insert_variant(owner, asset_id, ana.organization_id, code)
                elif unfinished:
                    await insert_variant(owner, asset_id, ana.organization_id, code, **unfinished)
            return asset_id

    with refused("assets_ready_requires_renditions"):
        await attempt(missing)
    with refused("assets_ready_requires_renditions"):
        await attempt(missing, status="processing")

    complete = await attempt(None)
    assert await owner.fetchval("SELECT status FROM assets.assets WHERE id = $1", complete) == "ready"
    with refused("assets_ready_requires_renditions"):  # and it cannot lose one afterwards
        await owner.execute(
            "DELETE FROM assets.asset_variants WHERE asset_id = $1 AND variant_code = $2", complete, missing
        )
    with refused("assets_ready_requires_renditions"):
        await owner.execute(
            "UPDATE assets.asset_variants SET status = 'processing', ready_at = NULL"
            " WHERE asset_id = $1 AND variant_code = $2",
            complete,
            missing,
        )


@pytest.mark.case("A1a-1.03")
async def test_refuses_a_ready_asset_of_a_profile_that_nobody_knows(owner: Connection, ana: Person) -> None:
    with refused("assets_ready_requires_renditions"):
        async with owner.transaction():
            asset_id = await insert_asset(owner, ana.organization_id, "ready", rendition_profile=2)
            await insert_variant(owner, asset_id, ana.organization_id, "original")


@pytest.mark.case("A1a-1.04")
async def test_refuses_a_failed_variant_without_a_failure_code_and_a_ready_one_with_a_failure_code(
    owner: Connection, ana: Person
) -> None:
    asset_id = await insert_asset(owner, ana.organization_id)
    with refused("asset_variants_failure_code_chk"):
        await insert_variant(owner, asset_id, ana.organization_id, "original", status="failed")
    with refused("asset_variants_failure_code_chk"):
        await insert_variant(owner, asset_id, ana.organization_id, "original", failure_code="assets.image_corrupt")
    with refused("asset_variants_state_chk"):
        await insert_variant(owner, asset_id, ana.organization_id, "original", byte_size=None)
    await insert_variant(
        owner, asset_id, ana.organization_id, "original", status="failed", failure_code="assets.image_corrupt"
    )


@pytest.mark.case("A1a-1.05")
async def test_lets_the_runtime_rename_an_asset_but_not_insert_delete_archive_or_set_its_status_or_access_class(
    owner: Connection, admission: Connection, library: Connection, worker: Connection, ana: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    for statement in (
        "INSERT INTO assets.assets (id) VALUES (gen_random_uuid())",
        "DELETE FROM assets.assets",
        "TRUNCATE assets.assets",
        "UPDATE assets.assets SET archived_at = now()",
        "UPDATE assets.assets SET status = 'failed'",
        "UPDATE assets.assets SET access_class = 'private'",
        "UPDATE assets.assets SET display_name = 'directly'",
        "DELETE FROM assets.asset_variants",
        "UPDATE assets.asset_variants SET status = 'failed'",
        "INSERT INTO assets.storage_providers (code, name, adapter_code, configuration_ref) VALUES ('x','x','s3','x')",
    ):
        with denied():
            async with acting(library, ana):
                await library.execute(statement)

    async with acting(library, ana):
        assert await library.fetchval("SELECT assets.rename_asset($1, 'Café con leche')", asset_id) == "renamed"
    assert await owner.fetchval("SELECT display_name FROM assets.assets WHERE id = $1", asset_id) == "Café con leche"
    async with acting(library, ana):
        assert await library.fetchval("SELECT assets.rename_asset($1, 'Café con leche')", asset_id) == "unchanged"
    renamed = await owner.fetch("SELECT * FROM audit.records WHERE action_code = 'assets.asset.renamed'")
    assert len(renamed) == 1
    assert renamed[0]["resource_id"] == asset_id
    assert renamed[0]["before_attributes"] == '{"displayName": "Hamburguesa"}'
    assert renamed[0]["after_attributes"] == '{"displayName": "Café con leche"}'


@pytest.mark.case("A1a-1.05")
async def test_gives_each_role_exactly_the_table_privileges_it_needs(owner: Connection) -> None:
    granted = await owner.fetch(
        """SELECT grantee::varchar, table_schema || '.' || table_name AS "table", privilege_type::varchar AS privilege
        FROM information_schema.role_table_grants
        WHERE table_schema IN ('organization', 'identity', 'platform', 'audit', 'assets')
            AND grantee <> 'ninaku_migrator'"""
    )
    assert {tuple(row.values()) for row in granted} == {
        ("ninaku_runtime", table, "SELECT")
        for table in (
            "assets.assets",
            "assets.asset_variants",
            "assets.storage_providers",
            "assets.uploads",
            "assets.organization_usage",
        )
    }
    by_column = await owner.fetch(
        """SELECT a.attrelid::regclass FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE a.attacl IS NOT NULL
            AND c.relnamespace::regnamespace::text IN ('organization', 'identity', 'platform', 'audit', 'assets')"""
    )
    assert by_column == []
    definers = await owner.fetch(
        "SELECT p.proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE NOT t.tgisinternal AND p.prosecdef"
    )
    assert {row["proname"] for row in definers} == {"create_organization_usage"}


@pytest.mark.case("A1a-1.06")
async def test_refuses_a_membership_of_another_organization_as_the_creator_of_an_asset(
    owner: Connection, admission: Connection, ana: Person, bruno: Person
) -> None:
    with refused("assets_created_by_membership_fk", "23503"):
        await insert_asset(owner, ana.organization_id, created_by_membership_id=bruno.membership_id)
    reserved = await reserve(admission, ana)
    creator = await owner.fetchval(
        "SELECT created_by_membership_id FROM assets.assets WHERE id = $1", reserved["asset_id"]
    )
    assert creator == ana.membership_id


@pytest.mark.case("A1a-1.07")
async def test_keeps_delivery_tokens_unique_and_lowercase_base32_of_26_characters(
    owner: Connection, ana: Person, bruno: Person
) -> None:
    taken = token()
    await insert_asset(owner, ana.organization_id, delivery_token=taken)
    with refused("assets_delivery_token_uq", "23505"):
        await insert_asset(owner, bruno.organization_id, delivery_token=taken)
    for wrong in ("a" * 25, "A" * 26, "a" * 25 + "1", "a" * 25 + "8", "a" * 25 + "-", "a" * 25 + "\n"):
        with refused("assets_delivery_token_chk"):
            await insert_asset(owner, ana.organization_id, delivery_token=wrong)
    with pytest.raises(asyncpg.StringDataRightTruncationError):
        await insert_asset(owner, ana.organization_id, delivery_token="a" * 27)


@pytest.mark.parametrize("column", ["display_name", "original_filename"])
async def test_refuses_names_that_are_empty_or_carry_control_characters(
    owner: Connection, ana: Person, column: str
) -> None:
    for wrong in ("", "a\nb", "\x1b[31m", "a\x7f", "\x85"):
        with refused(f"assets_{column}_chk"):
            await insert_asset(owner, ana.organization_id, **{column: wrong})
    with pytest.raises(asyncpg.StringDataRightTruncationError):
        await insert_asset(owner, ana.organization_id, **{column: "x" * 256})
    await insert_asset(owner, ana.organization_id, **{column: "Ñandú 🍔 " + "x" * 200})


async def test_hides_another_organizations_assets_and_variants_from_the_runtime(
    admission: Connection,
    library: Connection,
    worker: Connection,
    ana: Person,
    bruno: Person,
    database: DatabaseUnderTest,
) -> None:
    mine = await ready_asset(admission, worker, ana)
    await ready_asset(admission, worker, bruno)
    async with acting(library, ana, "assets.media.view"):
        assert [row["id"] for row in await library.fetch("SELECT id FROM assets.assets")] == [mine]
        assert {row["asset_id"] for row in await library.fetch("SELECT asset_id FROM assets.asset_variants")} == {mine}
    assert await library.fetch("SELECT id FROM assets.assets") == []  # no context, no rows
