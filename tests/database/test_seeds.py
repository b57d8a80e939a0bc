"""What an installed database holds before anybody uses it, and publishing plan versions (stage A1b)."""

import json
from typing import Any

import pytest

from database import migrate
from tests.database.arrange import refused
from tests.support.database import PASSWORDS, Connection, DatabaseUnderTest, add_organization


async def seeded(owner: Connection) -> dict[str, list[Any]]:
    tables = (
        "assets.storage_providers",
        "assets.sweeps",
        "identity.permissions",
        "identity.roles",
        "identity.role_permissions",
        "identity.tenant_context_secret",
        "platform.capabilities",
        "platform.limit_definitions",
        "platform.plans",
        "platform.plan_versions",
        "platform.plan_version_capabilities",
        "platform.plan_version_limits",
        "platform.offerings",
        "audit.resource_kinds",
        "audit.action_types",
    )
    return {
        table: [tuple(row.values()) for row in await owner.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")]
        for table in tables
    }


@pytest.mark.case("A1b.08")
async def test_seeds_the_providers_the_permissions_the_capability_both_limits_and_the_four_audit_actions(
    database: DatabaseUnderTest, owner: Connection
) -> None:
    before = await seeded(owner)
    assert all(before.values())
    await migrate.migrate(database.dsn())
    assert await seeded(owner) == before

    providers = await owner.fetch("SELECT code, adapter_code, configuration_ref, status FROM assets.storage_providers")
    assert {tuple(row.values()) for row in providers} == {
        ("s3-private", "s3", "ASSETS_S3", "active"),
        ("r2-public", "cloudflare_r2", "ASSETS_R2", "active"),
    }
    holders = await owner.fetch(
        """SELECT rp.permission_code, r.code, r.organization_id
        FROM identity.role_permissions rp JOIN identity.roles r ON r.id = rp.role_id
        WHERE rp.permission_code LIKE 'assets.%'"""
    )
    assert {tuple(row.values()) for row in holders} == {
        (permission, role, None)
        for permission in ("assets.media.manage", "assets.media.view")
        for role in ("organization_owner", "manager")
    }
    plans = await owner.fetch("SELECT * FROM platform.list_plans()")
    assert [
        (row["version_number"], row["status"], row["capabilities"], json.loads(row["limits"])) for row in plans
    ] == [
        (
            3,
            "active",
            ["assets.ai_generation", "assets.media", "catalog.items"],
            {"assets.active_assets": 5000, "assets.stored_megabytes": 10240, "assets.ai_generations": 20},
        ),
        (
            2,
            "retired",
            ["assets.media", "catalog.items"],
            {"assets.active_assets": 5000, "assets.stored_megabytes": 10240},
        ),
        (1, "retired", ["catalog.items"], {}),
    ]
    units = await owner.fetch("SELECT code, unit_code, reset_period FROM platform.limit_definitions")
    assert {tuple(row.values()) for row in units} == {
        ("assets.active_assets", "assets", "none"),
        ("assets.stored_megabytes", "megabytes", "none"),
        ("assets.ai_generations", "images", "month"),
    }
    kind = await owner.fetchrow(
        "SELECT owner_module, sensitivity FROM audit.resource_kinds WHERE code = 'assets.asset'"
    )
    assert tuple(kind.values()) == ("assets", "internal")
    actions = await owner.fetch(
        """SELECT code, owner_module, scope, risk, actor_requirement, requires_reason, requires_target,
            requires_authorization_decision, allows_before_after, retention_class
        FROM audit.action_types WHERE category = 'configuration' AND scope = 'tenant'"""
    )
    assert {tuple(row.values()) for row in actions} == {
        (f"assets.asset.{action}", "assets", "tenant", "medium", "required", False, True, True, True,
         "administration.platform")
        for action in ("upload_requested", "renamed", "archived", "restored")
    }  # fmt: skip


@pytest.mark.case("A1b.08")
async def test_plan_b_keeps_public_renditions_in_s3_and_switching_to_it_adds_its_provider(
    database: DatabaseUnderTest, owner: Connection
) -> None:
    other = f"{database.name}_plan_b"
    await migrate.create(database.server.admin_dsn, other, PASSWORDS, public_provider="s3-public")
    try:
        dsn = database.server.dsn(migrate.MIGRATOR, PASSWORDS[migrate.MIGRATOR], other)
        assert (await migrate.status(dsn)).state == "current"
        await migrate.migrate(database.dsn(), public_provider="s3-public")
        rows = await owner.fetch("SELECT code, adapter_code FROM assets.storage_providers ORDER BY code")
        assert [tuple(row.values()) for row in rows] == [
            ("r2-public", "cloudflare_r2"),
            ("s3-private", "s3"),
            ("s3-public", "s3"),
        ]
        import asyncpg

        elsewhere = await asyncpg.connect(dsn)
        rows = await elsewhere.fetch("SELECT code FROM assets.storage_providers ORDER BY code")
        await elsewhere.close()
        assert [row["code"] for row in rows] == ["s3-private", "s3-public"]
    finally:
        admin = await _admin(database)
        await admin.execute(f'DROP DATABASE "{other}" WITH (FORCE)')
        await admin.close()


async def _admin(database: DatabaseUnderTest) -> Connection:
    import asyncpg

    return await asyncpg.connect(database.server.admin_dsn)


@pytest.mark.case("A1b.09")
async def test_publishes_a_new_version_with_the_offerings_copied_and_retires_the_previous_one_once(
    owner: Connection,
) -> None:
    target = await add_organization(owner, "with an offer of its own", plan=None)
    plan_id = await owner.fetchval("INSERT INTO platform.plans (code, name) VALUES ('fixture', 'Fixture') RETURNING id")
    first = await owner.fetchval(
        "INSERT INTO platform.plan_versions (plan_id, version_number, status, published_at)"
        " VALUES ($1, 1, 'active', now()) RETURNING id",
        plan_id,
    )
    # Staff drafted a version: the highest number of the plan is not the active one.
    await owner.execute("INSERT INTO platform.plan_versions (plan_id, version_number) VALUES ($1, 4)", plan_id)
    await owner.execute("INSERT INTO platform.plan_version_capabilities VALUES ($1, 'catalog.items')", first)
    await owner.execute("INSERT INTO platform.plan_version_limits VALUES ($1, 'assets.active_assets', 7)", first)
    await owner.execute("INSERT INTO platform.plan_version_limits VALUES ($1, 'assets.ai_generations', NULL)", first)
    await owner.execute(
        """INSERT INTO platform.offerings (plan_version_id, market_code, currency_code, interval_code, amount_minor,
            trial_days, visibility, target_organization_id, status) VALUES
        ($1, 'CO', 'COP', 'month', 100, 30, 'public', NULL, 'active'),
        ($1, 'CO', 'COP', 'month', 50, 0, 'private', $2, 'active'),
        ($1, 'MX', 'MXN', 'year', 900, 7, 'public', NULL, 'retired')""",
        first,
        target,
    )
    publish = (
        "SELECT platform.publish_plan_version('fixture', '{assets.media}',"
        " '{assets.active_assets,assets.stored_megabytes}', '{5000,10240}')"
    )
    assert await owner.fetchval(publish) == 5
    versions = await owner.fetch(
        "SELECT version_number, status FROM platform.plan_versions WHERE plan_id = $1 ORDER BY 1", plan_id
    )
    assert [tuple(row.values()) for row in versions] == [(1, "retired"), (4, "draft"), (5, "active")]
    listed = await owner.fetchrow(
        "SELECT capabilities, limits FROM platform.list_plans() WHERE plan_code = 'fixture' AND version_number = 5"
    )
    assert listed["capabilities"] == ["assets.media", "catalog.items"]
    assert json.loads(listed["limits"]) == {
        "assets.active_assets": 5000,
        "assets.stored_megabytes": 10240,
        "assets.ai_generations": None,
    }
    copied = await owner.fetch(
        """SELECT o.market_code, o.currency_code, o.interval_code, o.amount_minor, o.trial_days, o.visibility,
            o.target_organization_id, o.status
        FROM platform.offerings o JOIN platform.plan_versions v ON v.id = o.plan_version_id
        WHERE v.plan_id = $1 AND v.version_number = 5""",
        plan_id,
    )
    assert {tuple(row.values()) for row in copied} == {
        ("CO", "COP", "month", 100, 30, "public", None, "active"),
        ("CO", "COP", "month", 50, 0, "private", target, "active"),
    }
    assert await owner.fetchval(publish) == 5  # once
    assert await owner.fetchval("SELECT count(*) FROM platform.plan_versions WHERE plan_id = $1", plan_id) == 3
    raised = "SELECT platform.publish_plan_version('fixture', '{}', '{assets.active_assets}', '{6000}')"
    assert await owner.fetchval(raised) == 6


async def test_publishing_refuses_an_unknown_plan_unequal_arrays_and_unknown_codes(owner: Connection) -> None:
    with refused("plan_unknown"):
        await owner.fetchval("SELECT platform.publish_plan_version('nobody')")
    with refused("plan_limits_shape"):
        await owner.fetchval("SELECT platform.publish_plan_version('pionero', '{}', '{assets.active_assets}', '{}')")
    with refused("plan_version_capabilities_capability_code_fkey", "23503"):
        await owner.fetchval("SELECT platform.publish_plan_version('pionero', '{no.such}')")


async def test_an_organization_keeps_its_version_until_it_is_moved(owner: Connection) -> None:
    organization_id = await add_organization(owner)
    await owner.fetchval("SELECT platform.move_subscription($1, 'pionero', 1)", organization_id)

    async def listed() -> tuple[int, bool]:
        row = await owner.fetchrow("SELECT version_number, entitled FROM identity.list_organizations()")
        return row["version_number"], row["entitled"]

    assert await listed() == (1, True)
    await owner.fetchval("SELECT platform.publish_plan_version('pionero', '{}', '{assets.active_assets}', '{9}')")
    assert await listed() == (1, True)
    moved = await owner.fetchval("SELECT platform.move_subscription($1, 'pionero')", organization_id)
    assert await listed() == (4, True)
    assert await owner.fetchval("SELECT platform.move_subscription($1, 'pionero')", organization_id) == moved
    assert await owner.fetchval("SELECT platform.end_subscription($1, '2001-01-01')", organization_id)
    assert await listed() == (4, False)
    await owner.fetchval("SELECT platform.move_subscription($1, 'pionero')", organization_id)
    assert await listed() == (4, True)
    with refused("plan_unknown"):
        await owner.fetchval("SELECT platform.move_subscription($1, 'pionero', 99)", organization_id)
