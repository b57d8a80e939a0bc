"""Who may call what, and how functions are made."""

import re
from pathlib import Path
from typing import Any

import pytest

from database import migrate
from tests.support.database import Connection

SCHEMAS = ["organization", "identity", "platform", "audit", "assets"]
RUNTIME = {
    "identity.open_tenant_context",
    "identity.assert_tenant_context",
    "identity.has_active_tenant_context",
    "identity.current_organization_id",
    "identity.current_membership_id",
    "identity.current_actor_id",
    "audit.record_denial",
    "assets.profile_rendition_codes",
    "assets.reserve_upload",
    "assets.complete_upload",
    "assets.archive_asset",
    "assets.restore_asset",
    "assets.rename_asset",
    "assets.read_asset",
    "assets.asset_in_context",
}
WORKER = {
    "assets.claim_processing_job",
    "assets.record_processing_outcome",
    "assets.release_processing_job",
    "assets.expire_uploads",
    "assets.reconcile_usage_batch",
    "assets.begin_sweep",
    "assets.continue_sweep",
    "assets.next_job_at",
    "assets.purge_asset_begin",
    "assets.purge_asset_finish",
    "assets.lease_standing",
    "assets.enqueue_purge_candidates",
    "assets.prune_finished_jobs",
    "assets.prune_settled_uploads",
}
QUEUE_READER = {"assets.queue_state", "assets.list_dead_letters"}


async def functions(owner: Connection) -> list[Any]:
    rows = await owner.fetch(
        """SELECT n.nspname || '.' || p.proname AS name, p.prosecdef AS definer, p.proconfig AS settings,
            p.prosqlbody IS NOT NULL AS bound, pg_get_userbyid(p.proowner)::text AS owner, p.oid,
            ARRAY(SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee)::text END
                FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
                WHERE a.grantee <> p.proowner) AS grantees
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = ANY ($1)""",
        SCHEMAS,
    )
    assert len(rows) > 60
    return list(rows)


async def test_every_function_pins_its_search_path_ending_in_pg_temp_and_belongs_to_the_migrator(
    owner: Connection,
) -> None:
    for function in await functions(owner):
        assert function["owner"] == migrate.MIGRATOR, function["name"]
        if function["bound"] and not function["definer"]:
            continue  # its names were bound at creation: there is nothing to search
        assert function["settings"] == ["search_path=pg_catalog, pg_temp"], function["name"]


async def test_every_function_is_granted_to_exactly_the_roles_intended_and_never_to_public(owner: Connection) -> None:
    for function in await functions(owner):
        expected = {
            role
            for role, names in (
                ("ninaku_runtime", RUNTIME),
                ("ninaku_worker", WORKER),
                ("ninaku_service_caller", {"assets.describe_assets"}),
                ("ninaku_queue_reader", QUEUE_READER),
            )
            if function["name"] in names
        }
        assert set(function["grantees"]) == expected, function["name"]
    names = [function["name"] for function in await functions(owner)]
    assert len(names) == len(set(names)), "an overload that nobody dropped"
    assert set(names) >= RUNTIME | WORKER | QUEUE_READER


async def test_every_function_that_writes_for_a_tenant_runs_as_the_owner(owner: Connection) -> None:
    definers = {function["name"] for function in await functions(owner) if function["definer"]}
    assert definers >= (RUNTIME - {"assets.profile_rendition_codes"}) | WORKER | {"assets.describe_assets"}


async def test_each_login_is_a_member_of_exactly_its_roles_and_may_do_nothing_else(owner: Connection) -> None:
    rows = await owner.fetch(
        """SELECT r.rolname::text, r.rolcanlogin, r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication
            OR r.rolbypassrls AS mighty,
            ARRAY(SELECT g.rolname::text FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
                WHERE m.member = r.oid AND m.inherit_option AND NOT m.set_option AND NOT m.admin_option) AS groups
        FROM pg_roles r WHERE r.rolname LIKE 'ninaku\\_%'"""
    )
    assert {row["rolname"]: (row["rolcanlogin"], row["mighty"], set(row["groups"])) for row in rows} == {
        **{login: (True, False, set(groups)) for login, groups in migrate.LOGINS.items()},
        **{group: (False, False, set()) for group in migrate.GROUPS},
    }


async def test_no_login_may_create_anything(owner: Connection) -> None:
    for login in migrate.LOGINS:
        if login == migrate.MIGRATOR:
            continue
        for schema in [*SCHEMAS, "ninaku_migrations", "public"]:
            assert not await owner.fetchval("SELECT has_schema_privilege($1, $2, 'CREATE')", login, schema)
        assert not await owner.fetchval("SELECT has_schema_privilege($1, 'ninaku_migrations', 'USAGE')", login)
        for privilege in ("CREATE", "TEMPORARY"):
            assert not await owner.fetchval(
                "SELECT has_database_privilege($1, current_database(), $2)", login, privilege
            )


@pytest.mark.parametrize(
    "path",
    sorted((migrate.FOLDER / "schema").glob("*/functions/*.sql")),
    ids=lambda path: f"{path.parts[-3]}.{path.stem}",
)
def test_every_function_file_holds_one_function_named_like_it_and_says_at_its_head_what_it_does(path: Path) -> None:
    text = path.read_text()
    defined = re.findall(r"^CREATE OR REPLACE FUNCTION (\w+\.\w+)\(", text, re.MULTILINE)
    assert defined == [f"{path.parts[-3]}.{path.stem}"]
    assert text.startswith("-- ")
    assert max(map(len, text.splitlines())) <= 120
