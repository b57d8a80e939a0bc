"""Sessions, authorization and the sealed tenant context."""

from typing import Any
from uuid import uuid4

import pytest

from tests.database.arrange import acting, denied, open_context, ready_asset, refused, reserve
from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization, add_person


async def is_open(connection: Connection) -> bool:
    answer: bool = await connection.fetchval("SELECT identity.has_active_tenant_context()")
    return answer


async def test_opens_a_context_for_the_transaction_only_and_names_who_acts(admission: Connection, ana: Person) -> None:
    async with admission.transaction():
        row = await admission.fetchrow(
            "SELECT * FROM identity.open_tenant_context($1, $2, 'assets.media.manage', 'assets.media', 'library', 'r')",
            ana.token_hash,
            ana.organization_id,
        )
        assert tuple(row.values()) == ("authorized", ana.actor_id, ana.user_id, ana.membership_id)
        current = await admission.fetchrow(
            "SELECT identity.current_organization_id(), identity.current_membership_id(), identity.current_actor_id()"
        )
        assert tuple(current.values()) == (ana.organization_id, ana.membership_id, ana.actor_id)
        assert await is_open(admission)
    assert not await is_open(admission)
    assert await admission.fetchval("SELECT identity.current_organization_id()") is None
    with refused("tenant_context_missing", "42501"):
        await admission.fetchval("SELECT identity.assert_tenant_context()")


async def test_answers_each_refusal_and_opens_nothing(
    owner: Connection, admission: Connection, ana: Person, bruno: Person
) -> None:
    cashier = await add_person(owner, ana.organization_id, "cashier")
    waiter = await add_person(owner, ana.organization_id, "waiter")
    unit_manager = await add_person(owner, ana.organization_id, "manager", "Outlet Norte")
    manager = await add_person(owner, ana.organization_id, "manager")
    permission, capability = "assets.media.manage", "assets.media"
    nobody = Person(ana.organization_id, uuid4(), uuid4(), uuid4(), "x@example.com", "t", bytes(32))

    async def outcome(person: Person, **how: Any) -> str:
        async with admission.transaction():
            answer = await open_context(
                admission, person, **{"permission": permission, "capability": capability, **how}
            )
            assert await is_open(admission) == (answer == "authorized")
            return answer

    assert await outcome(ana) == "authorized"
    assert await outcome(manager) == "authorized"
    assert await outcome(nobody) == "unauthenticated"
    assert await outcome(ana, organization_id=bruno.organization_id) == "context_rejected"
    assert await outcome(ana, organization_id=uuid4()) == "context_rejected"
    assert [await outcome(person) for person in (cashier, waiter, unit_manager)] == ["forbidden"] * 3
    assert await outcome(cashier, permission="catalog.items.view", capability=None) == "authorized"
    assert await outcome(ana, permission="no.such.permission") == "forbidden"
    await owner.fetchval("SELECT platform.end_subscription($1, now())", ana.organization_id)
    assert await outcome(ana) == "not_entitled"
    assert await outcome(cashier) == "forbidden"  # what a person may not do hides what the plan lacks
    assert await outcome(ana, capability=None) == "authorized"
    await owner.execute("UPDATE organization.organizations SET status = 'suspended' WHERE id = $1", ana.organization_id)
    assert await outcome(ana, capability=None) == "context_rejected"
    await owner.execute("UPDATE organization.organizations SET status = 'active'")
    assert await owner.fetchval("SELECT identity.end_membership($1)", manager.membership_id)
    assert await outcome(manager) == "context_rejected"
    await owner.execute("UPDATE identity.users SET status = 'disabled' WHERE id = $1", ana.user_id)
    assert await outcome(ana) == "unauthenticated"


async def test_a_refusal_closes_the_context_that_was_open(admission: Connection, ana: Person) -> None:
    async with admission.transaction():
        assert await open_context(admission, ana) == "authorized"
        assert await open_context(admission, ana, organization_id=uuid4()) == "context_rejected"
        assert not await is_open(admission)


@pytest.mark.parametrize(
    ("column", "age", "outcome"),
    [
        ("last_seen_at", "11 hours 59 minutes", "authorized"),
        ("last_seen_at", "12 hours", "unauthenticated"),
        ("created_at", "29 days 23 hours", "authorized"),
        ("created_at", "30 days", "unauthenticated"),
    ],
)
async def test_a_session_ends_12_hours_after_its_last_use_and_30_days_after_its_start(
    owner: Connection, admission: Connection, ana: Person, column: str, age: str, outcome: str
) -> None:
    await owner.execute("UPDATE identity.sessions SET created_at = now() - interval '20 days'")
    await owner.execute(f"UPDATE identity.sessions SET {column} = now() - interval '{age}'")
    assert await open_context(admission, ana) == outcome


async def test_a_revoked_session_opens_nothing(owner: Connection, admission: Connection, ana: Person) -> None:
    session = await owner.fetchrow("SELECT * FROM identity.list_sessions($1)", ana.email)
    assert session["lives"]
    assert await owner.fetchval("SELECT identity.revoke_session($1)", session["session_id"])
    assert not await owner.fetchval("SELECT identity.revoke_session($1)", session["session_id"])
    assert await open_context(admission, ana) == "unauthenticated"
    assert not (await owner.fetchrow("SELECT * FROM identity.list_sessions($1)", ana.email))["lives"]


async def test_use_keeps_a_session_alive_and_is_written_at_most_once_a_minute(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, ana: Person
) -> None:
    async def seen() -> str:
        answer: str = await owner.fetchval("SELECT last_seen_at || '/' || xmin FROM identity.sessions")
        return answer

    first = await seen()
    await open_context(admission, ana)
    assert await seen() == first
    await owner.execute(
        "UPDATE identity.sessions SET created_at = now() - interval '1 day', last_seen_at = now() - interval '61 s'"
    )
    stale = await seen()
    library = await database.login("ninaku_library")
    async with admission.transaction():
        await open_context(admission, ana)
        # A second request meanwhile neither waits for the first one's row nor fails.
        await library.execute("SET lock_timeout = '2s'")
        assert await open_context(library, ana) == "authorized"
    touched = await seen()
    assert touched != stale
    await open_context(admission, ana)
    assert await seen() == touched


@pytest.mark.case("A1b.06")
async def test_refuses_a_forged_a_changed_and_a_replayed_context(
    database: DatabaseUnderTest, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    await ready_asset(admission, worker, bruno)
    read = "SELECT current_setting('ninaku.tenant_context')"
    async with acting(admission, ana):
        mine = await admission.fetchval(read)
    async with acting(admission, bruno):
        theirs = await admission.fetchval(read)
    library = await database.login("ninaku_library")

    changed = mine.replace(str(ana.organization_id), str(bruno.organization_id))
    assert changed != mine
    for forged in (mine, theirs, changed, theirs[64:], "0" * 64 + theirs[64:], "f" * 64, "x", "0" * 64 + "not json"):
        for connection in (admission, library):
            async with connection.transaction():
                await connection.execute("SELECT set_config('ninaku.tenant_context', $1, true)", forged)
                assert not await is_open(connection)
                assert await connection.fetch("SELECT * FROM assets.assets") == []
            await connection.execute("SELECT set_config('ninaku.tenant_context', $1, false)", forged)
            assert not await is_open(connection)
            await connection.execute("RESET ninaku.tenant_context")

    async with acting(admission, ana):  # one's own context, with another organization written into it
        await admission.execute(
            "SELECT set_config(name, replace(current_setting(name), $1, $2), true)"
            " FROM (VALUES ('ninaku.tenant_context')) AS setting (name)",
            str(ana.organization_id),
            str(bruno.organization_id),
        )
        assert not await is_open(admission)
        with refused("tenant_context_missing", "42501"):
            await admission.fetch("SELECT assets.asset_in_context(gen_random_uuid())")


@pytest.mark.parametrize("login", ["ninaku_admission", "ninaku_delivery", "ninaku_processing_worker"])
async def test_no_login_can_read_the_secret_or_ask_for_a_seal(database: DatabaseUnderTest, login: str) -> None:
    connection = await database.login(login)
    for statement in (
        "SELECT * FROM identity.tenant_context_secret",
        "SELECT identity.seal_tenant_context('x')",
        "SELECT identity.tenant_context()",
        "SELECT audit.append('assets.asset.renamed', 'assets.asset', NULL, NULL, NULL)",
        "SELECT * FROM identity.sessions",
        "SET ROLE ninaku_migrator",
    ):
        with denied():
            await connection.execute(statement)


async def test_the_secret_differs_from_one_database_to_the_next_and_a_new_one_ends_what_is_open(
    owner: Connection, admission: Connection, ana: Person
) -> None:
    secret = await owner.fetchval("SELECT secret FROM identity.tenant_context_secret")
    assert len(set(secret)) > 8
    async with acting(admission, ana):
        await owner.execute("UPDATE identity.tenant_context_secret SET secret = sha256('rotated')")
        assert not await is_open(admission)


async def test_reads_one_asset_from_session_to_row(
    owner: Connection, admission: Connection, library: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    pending = (await reserve(admission, ana))["asset_id"]
    cashier = await add_person(owner, ana.organization_id, "cashier")
    unit_manager = await add_person(owner, ana.organization_id, "manager", "Outlet Norte")

    async def read(person: Person, asset: Any, organization: Any = None, token_hash: bytes | None = None) -> Any:
        rows = await library.fetch(
            "SELECT * FROM assets.read_asset($1, $2, $3)",
            token_hash or person.token_hash,
            organization or person.organization_id,
            asset,
        )
        assert len(rows) == 1
        return rows[0]

    found = await read(ana, asset_id)
    assert (found["outcome"], found["id"], found["status"]) == ("found", asset_id, "ready")
    assert (found["width"], found["height"], found["byte_size"]) == (640, 480, 100)
    assert found["ready_at"] is not None
    assert found["rendition_profile"] == 1
    early = await read(ana, pending)
    assert (early["outcome"], early["status"], early["width"], early["byte_size"]) == ("found", "pending", None, None)
    for person, asset, organization, token_hash, outcome in (
        (ana, uuid4(), None, None, "not_found"),
        (bruno, asset_id, None, None, "not_found"),
        (ana, asset_id, bruno.organization_id, None, "context_rejected"),
        (bruno, asset_id, ana.organization_id, None, "context_rejected"),
        (cashier, asset_id, None, None, "forbidden"),
        (unit_manager, asset_id, None, None, "forbidden"),
        (ana, asset_id, None, bytes(32), "unauthenticated"),
    ):
        answer = await read(person, asset, organization, token_hash)
        assert answer["outcome"] == outcome
        assert set(answer.values()) == {outcome, None}
    async with acting(library, ana, "assets.media.view"):
        same = await library.fetchrow("SELECT * FROM assets.asset_in_context($1)", asset_id)
    assert same == found
    await owner.execute(
        "UPDATE identity.sessions SET created_at = now() - interval '1 day', last_seen_at = now() - interval '12 hours'"
    )
    assert (await read(ana, asset_id))["outcome"] == "unauthenticated"


async def test_describes_many_assets_for_a_service_in_the_order_asked_for(
    database: DatabaseUnderTest,
    owner: Connection,
    admission: Connection,
    worker: Connection,
    ana: Person,
    bruno: Person,
) -> None:
    delivery = await database.login("ninaku_delivery")
    mine = [await ready_asset(admission, worker, ana) for _ in range(3)]
    pending = (await reserve(admission, ana))["asset_id"]
    foreign = await ready_asset(admission, worker, bruno)
    cashier = await add_person(owner, ana.organization_id, "cashier")

    async def describe(
        person: Person, ids: list[Any], organization: Any = None, service: str | None = "catalog"
    ) -> Any:
        return await delivery.fetch(
            "SELECT * FROM assets.describe_assets($1, $2, $3, $4)",
            service,
            organization or person.organization_id,
            person.membership_id,
            ids,
        )

    asked = [mine[2], uuid4(), mine[0], foreign, pending, mine[2]]
    rows = await describe(cashier, asked)  # a till needs no media permission
    assert [(row["outcome"], row["asset_id"]) for row in rows] == [
        ("found", mine[2]),
        ("found", mine[0]),
        ("found", pending),
    ]
    assert (rows[0]["status"], rows[0]["width"], rows[0]["height"]) == ("ready", 640, 480)
    assert (rows[2]["status"], rows[2]["width"]) == ("pending", None)
    assert await describe(ana, []) == []
    rejected = [("context_rejected", *[None] * 10)]
    assert [tuple(row.values()) for row in await describe(bruno, mine, ana.organization_id)] == rejected
    assert [tuple(row.values()) for row in await describe(ana, mine, service=None)] == rejected
    await owner.fetchval("SELECT identity.end_membership($1)", cashier.membership_id)
    assert [tuple(row.values()) for row in await describe(cashier, mine)] == rejected


async def test_operators_make_people_once_and_see_them(owner: Connection) -> None:
    organization_id = await add_organization(owner)
    add = "SELECT * FROM identity.add_member($1, $2, $3, $4, $5)"
    unit = await owner.fetchval("SELECT organization.create_business_unit($1, 'Norte')", organization_id)
    assert unit == await owner.fetchval("SELECT organization.create_business_unit($1, 'Norte')", organization_id)
    first = await owner.fetchrow(add, organization_id, "Eva@example.com", "Eva", "cashier", None)
    again = await owner.fetchrow(add, organization_id, "eva@EXAMPLE.com", "Other", "manager", unit)
    assert (first["created"], again["created"]) == (True, False)
    assert tuple(first.values())[:3] == tuple(again.values())[:3]
    members = await owner.fetch("SELECT * FROM identity.list_members($1)", organization_id)
    assert [(row["email"], row["display_name"], row["role_code"], row["business_unit_name"]) for row in members] == [
        ("Eva@example.com", "Eva", "cashier", None),
        ("Eva@example.com", "Eva", "manager", "Norte"),
    ]
    with refused("role_unknown"):
        await owner.fetchrow(add, organization_id, "x@example.com", "X", "emperor", None)
    with refused("users_email_chk"):
        await owner.fetchrow(add, organization_id, "not an address", "X", "cashier", None)
    elsewhere = await add_organization(owner, "elsewhere")
    with refused("membership_roles_business_unit_fk", "23503"):
        await owner.fetchrow(add, elsewhere, "x@example.com", "X", "manager", unit)
    with refused("user_unknown"):
        await owner.fetchval("SELECT identity.create_session('nobody@example.com', $1)", bytes(32))
    with refused("sessions_token_hash_chk"):
        await owner.fetchval("SELECT identity.create_session('eva@example.com', 'short'::bytea)")
    await owner.fetchval("SELECT identity.create_session('eva@example.com', $1)", bytes(32))
    assert await owner.fetchval("SELECT identity.revoke_user_sessions('EVA@example.com')") == 1
