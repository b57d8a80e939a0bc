"""Creating, migrating and inspecting a database; what is refused, and why."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from database import migrate
from services.cli.local.postgres import LocalPostgres
from tests.support.database import PASSWORDS, Connection, DatabaseUnderTest, add_organization, add_person


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the database folder, to change."""
    copy = tmp_path / "database"
    shutil.copytree(migrate.FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "migrations").mkdir(exist_ok=True)
    return copy


@pytest.fixture
async def empty(database: DatabaseUnderTest) -> AsyncIterator[str]:
    """A database that nothing was installed in, as the migrator."""
    name = f"{database.name}_empty"
    admin = await asyncpg.connect(database.server.admin_dsn)
    await admin.execute(f'CREATE DATABASE "{name}" OWNER {migrate.MIGRATOR}')
    yield database.server.dsn(migrate.MIGRATOR, PASSWORDS[migrate.MIGRATOR], name)
    await admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    await admin.close()


def add_migration(folder: Path, name: str, text: str) -> Path:
    path = folder / "migrations" / name
    path.write_text(text)
    return path


async def everything(connection: Connection) -> list[tuple[str, ...]]:
    """Every function, constraint, index, policy, trigger and grant, to compare two databases or two moments."""
    rows = await connection.fetch(
        """WITH ours AS (SELECT oid FROM pg_namespace
            WHERE nspname IN ('organization', 'identity', 'platform', 'audit', 'assets'))
        SELECT 'function' AS kind, p.oid::regprocedure::text AS name,
                pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '') AS text
            FROM pg_proc p WHERE p.pronamespace IN (SELECT oid FROM ours)
        UNION ALL SELECT 'constraint', c.conrelid::regclass || '.' || c.conname, pg_get_constraintdef(c.oid)
            FROM pg_constraint c WHERE c.connamespace IN (SELECT oid FROM ours)
        UNION ALL SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
            FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace IN (SELECT oid FROM ours)
        UNION ALL SELECT 'column', a.attrelid::regclass || '.' || a.attname,
                format_type(a.atttypid, a.atttypmod) || a.attnotnull
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
            WHERE c.relnamespace IN (SELECT oid FROM ours) AND c.relkind = 'r' AND a.attnum > 0
        UNION ALL SELECT 'policy', p.polrelid::regclass || '.' || p.polname, pg_get_expr(p.polqual, p.polrelid)
            FROM pg_policy p
        UNION ALL SELECT 'trigger', t.tgrelid::regclass || '.' || t.tgname, pg_get_triggerdef(t.oid)
            FROM pg_trigger t WHERE NOT t.tgisinternal
        UNION ALL SELECT 'table', c.oid::regclass::text, coalesce(c.relacl::text, '') || c.relrowsecurity
            FROM pg_class c WHERE c.relnamespace IN (SELECT oid FROM ours) AND c.relkind IN ('r', 'S')
        ORDER BY 1, 2"""
    )
    return [tuple(row.values()) for row in rows]


async def test_creating_twice_changes_nothing_and_keeps_what_is_stored(
    database: DatabaseUnderTest, owner: Connection
) -> None:
    await add_person(owner, await add_organization(owner))
    before = await everything(owner)
    people = await owner.fetch("SELECT *, xmin FROM identity.users")
    await migrate.create(database.server.admin_dsn, database.name, PASSWORDS)
    assert await everything(owner) == before
    assert await owner.fetch("SELECT *, xmin FROM identity.users") == people
    status = await migrate.status(database.dsn())
    assert status == migrate.DatabaseStatus("current", (), (), None)


async def test_a_database_made_from_nothing_is_the_same_every_time(
    database: DatabaseUnderTest, owner: Connection, empty: str
) -> None:
    assert (await migrate.status(empty)).state == "empty"
    assert (await migrate.migrate(empty)).state == "current"
    other = await asyncpg.connect(empty)
    assert await everything(other) == await everything(owner)
    await other.close()


async def test_repeating_functions_grants_and_seeds_restores_what_somebody_changed_by_hand(
    database: DatabaseUnderTest, owner: Connection
) -> None:
    before = await everything(owner)
    await owner.execute(
        "CREATE OR REPLACE FUNCTION assets.archive_asset(p_asset_id uuid) RETURNS varchar"
        " LANGUAGE sql AS $$ SELECT 'x' $$"
    )
    await owner.execute("GRANT ALL ON assets.assets TO ninaku_runtime; GRANT SELECT ON audit.records TO PUBLIC")
    await owner.execute("GRANT EXECUTE ON FUNCTION identity.seal_tenant_context(text) TO PUBLIC")
    assert await everything(owner) != before
    await migrate.migrate(database.dsn())
    assert await everything(owner) == before


async def test_resetting_deletes_everything_whoever_is_connected(
    database: DatabaseUnderTest, owner: Connection
) -> None:
    await add_organization(owner)
    await migrate.reset(database.server.admin_dsn, database.name, PASSWORDS)
    fresh = await database.owner()
    assert await fresh.fetchval("SELECT count(*) FROM organization.organizations") == 0
    assert owner.is_closed() or await _is_cut(owner)


async def _is_cut(connection: Connection) -> bool:
    try:
        await connection.fetchval("SELECT 1")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError):
        return True
    return False


async def test_refuses_a_database_of_an_older_schema_by_name_with_the_remedy(
    database: DatabaseUnderTest, owner: Connection, folder: Path
) -> None:
    table = folder / "schema" / "assets" / "500_assets.sql"
    table.write_text(table.read_text() + "\nCREATE TABLE assets.later (id uuid PRIMARY KEY);\n")
    before = await everything(owner)
    status = await migrate.status(database.dsn(), folder=folder)
    assert status.state == "refused"
    for attempt in (
        migrate.migrate(database.dsn(), folder=folder),
        migrate.create(database.server.admin_dsn, database.name, PASSWORDS, folder=folder),
    ):
        with pytest.raises(migrate.MigrationRefused, match="'ninaku db reset'"):
            await attempt
    assert await everything(owner) == before
    await migrate.reset(database.server.admin_dsn, database.name, PASSWORDS, folder=folder)
    assert (await migrate.status(database.dsn(), folder=folder)).state == "current"


async def test_a_function_whose_result_changed_is_refused_with_the_remedy(
    database: DatabaseUnderTest, folder: Path
) -> None:
    function = folder / "schema" / "assets" / "functions" / "begin_sweep.sql"
    function.write_text(function.read_text().replace("RETURNS boolean", "RETURNS varchar", 1))
    with pytest.raises(migrate.MigrationRefused, match=r"begin_sweep\.sql: .*'ninaku db reset'"):
        await migrate.migrate(database.dsn(), folder=folder)


async def test_applies_migrations_in_order_once_and_a_fresh_database_only_records_them(
    database: DatabaseUnderTest, owner: Connection, folder: Path, empty: str
) -> None:
    table = folder / "schema" / "assets" / "500_assets.sql"
    later = "CREATE TABLE assets.later (id uuid PRIMARY KEY);"
    column = "ALTER TABLE assets.later ADD COLUMN note text;"
    add_migration(folder, "0001_add_later.sql", later)
    add_migration(folder, "0002_add_note.sql", column)
    table.write_text(f"{table.read_text()}\n{later}\n{column}\n")
    names = ("0001_add_later.sql", "0002_add_note.sql")

    status = await migrate.status(database.dsn(), folder=folder)
    assert (status.state, status.applied, [Path(name).name for name in status.pending]) == ("behind", (), list(names))
    migrated = await migrate.migrate(database.dsn(), folder=folder)
    assert (migrated.state, [Path(name).name for name in migrated.applied]) == ("current", list(names))
    again = await migrate.migrate(database.dsn(), folder=folder)
    assert again == migrated

    assert await migrate.migrate(empty, folder=folder) == migrated
    fresh = await asyncpg.connect(empty)
    assert await everything(fresh) == await everything(owner)
    await fresh.close()


async def test_refuses_a_changed_and_a_missing_migration_by_name(
    database: DatabaseUnderTest, owner: Connection, folder: Path
) -> None:
    path = add_migration(folder, "0001_add_later.sql", "CREATE TABLE assets.later (id uuid PRIMARY KEY);")
    await migrate.migrate(database.dsn(), folder=folder)
    before = await everything(owner)
    path.write_text("CREATE TABLE assets.later (id bigint PRIMARY KEY);")
    with pytest.raises(migrate.MigrationRefused, match=r"0001_add_later\.sql was changed after it was applied"):
        await migrate.migrate(database.dsn(), folder=folder)
    path.unlink()
    with pytest.raises(migrate.MigrationRefused, match=r"0001_add_later\.sql was applied .* but is missing here"):
        await migrate.migrate(database.dsn(), folder=folder)
    assert await everything(owner) == before


async def test_a_migration_that_fails_is_named_and_leaves_nothing_behind(
    database: DatabaseUnderTest, owner: Connection, folder: Path
) -> None:
    before = await everything(owner)
    add_migration(folder, "0001_break.sql", "CREATE TABLE assets.later (id uuid); SELECT 1 / 0;")
    with pytest.raises(migrate.MigrationRefused, match=r"0001_break\.sql: division by zero"):
        await migrate.migrate(database.dsn(), folder=folder)
    assert await everything(owner) == before
    assert (await migrate.status(database.dsn(), folder=folder)).state == "behind"


async def test_a_migration_gives_up_rather_than_make_services_wait_behind_it(
    database: DatabaseUnderTest, owner: Connection, folder: Path
) -> None:
    path = add_migration(folder, "0001_timeouts.sql", "")
    path.write_text(
        "DO $$ BEGIN IF current_setting('lock_timeout') <> '5s' OR current_setting('statement_timeout') = '0'"
        " THEN RAISE EXCEPTION 'no limits'; END IF; END $$;"
    )
    assert (await migrate.migrate(database.dsn(), folder=folder)).state == "current"


async def test_refuses_a_database_that_something_else_made(empty: str) -> None:
    connection = await asyncpg.connect(empty)
    await connection.execute("CREATE SCHEMA assets")
    await connection.close()
    with pytest.raises(migrate.MigrationRefused, match="no ledger"):
        await migrate.migrate(empty)


async def test_an_installation_that_fails_leaves_the_database_empty(empty: str, folder: Path) -> None:
    seed = folder / "schema" / "assets" / "seeds" / "640_assets.sql"
    seed.write_text(seed.read_text() + "\nSELECT 1 / 0;\n")
    with pytest.raises(migrate.MigrationRefused, match=r"640_assets\.sql"):
        await migrate.migrate(empty, folder=folder)
    assert (await migrate.status(empty)).state == "empty"
    assert (await migrate.migrate(empty)).state == "current"


async def test_wants_exactly_one_printable_password_per_login(postgres_server: LocalPostgres) -> None:
    for wrong, match in (
        ({login: "x" for login in migrate.LOGINS if login != "ninaku_library"}, "ninaku_library"),
        ({**PASSWORDS, "nobody": "x"}, "nobody"),
        ({**PASSWORDS, "ninaku_library": "ñ"}, "printable ASCII"),
        ({**PASSWORDS, "ninaku_library": ""}, "printable ASCII"),
    ):
        with pytest.raises(migrate.MigrationRefused, match=match):
            await migrate.create(postgres_server.admin_dsn, "never_made", wrong)


async def test_a_new_password_replaces_the_old_one(database: DatabaseUnderTest) -> None:
    changed = {**PASSWORDS, "ninaku_library": "it's % new"}
    await migrate.create(database.server.admin_dsn, database.name, changed)
    try:
        with pytest.raises(asyncpg.InvalidPasswordError):
            await database.login("ninaku_library")
        connection = await asyncpg.connect(
            database.server.dsn("ninaku_library", changed["ninaku_library"], database.name)
        )
        await connection.close()
    finally:
        await migrate.create(database.server.admin_dsn, database.name, PASSWORDS)


async def test_lets_nobody_in_but_its_logins(owner: Connection) -> None:
    assert not await owner.fetchval("SELECT has_database_privilege('public', current_database(), 'CONNECT')")


def test_two_table_files_never_share_a_number(folder: Path) -> None:
    (folder / "schema" / "audit" / "500_again.sql").write_text("SELECT 1;")
    with pytest.raises(migrate.MigrationRefused, match="same number"):
        migrate.read_source(folder)
