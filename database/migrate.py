"""Creates, migrates and inspects the database: what `ninaku db create | migrate | status | reset` run.

`schema/` is the end state, which a fresh database gets in the order of its file numbers; `migrations/` is how an
existing one gets there. Functions, grants and seeds can be repeated, and are, at every migration. A ledger inside the
database remembers what was applied, with checksums: a changed or missing migration is refused by name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

MIGRATOR: Final = "ninaku_migrator"
GROUPS: Final = ("ninaku_runtime", "ninaku_worker", "ninaku_catalog", "ninaku_service_caller", "ninaku_queue_reader")
LOGINS: Final[Mapping[str, tuple[str, ...]]] = {
    MIGRATOR: (),
    "ninaku_admission": ("ninaku_runtime",),
    "ninaku_library": ("ninaku_runtime",),
    "ninaku_delivery": ("ninaku_runtime", "ninaku_service_caller"),
    "ninaku_processing": ("ninaku_queue_reader",),
    "ninaku_processing_worker": ("ninaku_worker",),
}
"""One login per process, with the roles it is a member of; operators connect as the migrator."""

FOLDER: Final = Path(__file__).resolve().parent
PublicProvider = Literal["r2-public", "s3-public"]

_SCHEMAS: Final = ("organization", "identity", "platform", "audit", "assets")
_ONE_AT_A_TIME: Final = 0x6E696E616B75  # "ninaku": the advisory lock of everything in this module
_LEDGER: Final = """
CREATE SCHEMA ninaku_migrations;
REVOKE ALL ON SCHEMA ninaku_migrations FROM PUBLIC;
CREATE TABLE ninaku_migrations.baseline (
    only_row     boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    fingerprint  text NOT NULL,
    recorded_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE ninaku_migrations.ledger (
    name        text PRIMARY KEY,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
"""

_Connection = Any  # asyncpg's connection class is generic over a record type that nothing here uses


class MigrationRefused(RuntimeError):
    """The database was left as it was; the message names what stands in the way and the remedy."""


@dataclass(frozen=True)
class Script:
    """One SQL file: its path below the database folder, its text and the SHA-256 of its bytes."""

    name: str
    text: str
    checksum: str


@dataclass(frozen=True)
class Source:
    """Everything below a database folder, each group in the order in which it runs."""

    tables: tuple[Script, ...]
    functions: tuple[Script, ...]
    grants: Script
    seeds: tuple[Script, ...]
    migrations: tuple[Script, ...]

    @property
    def fingerprint(self) -> str:
        """What cannot be repeated on an existing database: the table files, names and contents."""
        joined = "".join(f"{script.name} {script.checksum}\n" for script in self.tables)
        return hashlib.sha256(joined.encode()).hexdigest()


@dataclass(frozen=True)
class DatabaseStatus:
    """Where a database stands. `problem` is None unless the code refuses to work on it."""

    state: Literal["empty", "current", "behind", "refused"]
    applied: tuple[str, ...]
    pending: tuple[str, ...]
    problem: str | None


def read_source(folder: Path = FOLDER) -> Source:
    """Reads the SQL files. A table or seed file runs by its number (`NNN_name.sql`), whatever module it is in."""

    def script(path: Path) -> Script:
        content = path.read_bytes()
        return Script(path.relative_to(folder).as_posix(), content.decode(), hashlib.sha256(content).hexdigest())

    def numbered(pattern: str) -> tuple[Script, ...]:
        paths = sorted(folder.glob(pattern), key=lambda path: path.name)
        numbers = [path.name.split("_")[0] for path in paths]
        if len(set(numbers)) != len(numbers):
            raise MigrationRefused(f"two files of {pattern} have the same number")
        return tuple(script(path) for path in paths)

    schemas = script(folder / "schema" / "000_schemas.sql")
    return Source(
        tables=(schemas, *numbered("schema/*/[0-9]*.sql")),
        functions=tuple(script(path) for path in sorted(folder.glob("schema/*/functions/*.sql"))),
        grants=script(folder / "grants.sql"),
        seeds=numbered("schema/*/seeds/[0-9]*.sql"),
        migrations=numbered("migrations/[0-9]*.sql"),
    )


async def create(
    admin_dsn: str,
    database: str,
    passwords: Mapping[str, str],
    *,
    folder: Path = FOLDER,
    public_provider: PublicProvider = "r2-public",
) -> None:
    """Makes roles, logins and the database where they are missing, sets the passwords, and migrates. Repeatable.

    `admin_dsn` may create roles and databases; `passwords` has exactly one entry per login of LOGINS.
    Raises MigrationRefused for missing or unknown logins, and as `migrate` does.
    """
    if set(passwords) != set(LOGINS):
        different = ", ".join(sorted(set(passwords) ^ set(LOGINS)))
        raise MigrationRefused(f"exactly one password per login is needed; missing or unknown: {different}")
    async with _connected(admin_dsn) as connection:
        await _create_roles(connection, passwords)
        if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", database):
            await _run(connection, "CREATE DATABASE %I OWNER %I", database, MIGRATOR)
        await _run(connection, "REVOKE ALL ON DATABASE %I FROM PUBLIC", database)
        for login in LOGINS:
            await _run(connection, "GRANT CONNECT ON DATABASE %I TO %I", database, login)
    await migrate(
        _address(admin_dsn, MIGRATOR, passwords[MIGRATOR], database), folder=folder, public_provider=public_provider
    )


async def migrate(dsn: str, *, folder: Path = FOLDER, public_provider: PublicProvider = "r2-public") -> DatabaseStatus:
    """Installs an empty database or brings an existing one up to date, as the migrator; returns where it stands.

    `public_provider` is where public renditions of new assets may lie: a row is added, none is removed.
    Raises MigrationRefused, before anything is changed, for a database that this code must not touch.
    """
    source = read_source(folder)
    async with _connected(dsn) as connection:
        found = await _status(connection, source)
        if found.problem is not None:
            raise MigrationRefused(found.problem)
        for script in found.pending:
            await _apply_migration(connection, next(each for each in source.migrations if each.name == script))
        async with connection.transaction():
            await connection.execute("SELECT set_config('ninaku.public_provider', $1, true)", public_provider)
            if found.state == "empty":
                await _install(connection, source)
            await _repeat(connection, source)
            await connection.execute(
                "UPDATE ninaku_migrations.baseline SET fingerprint = $1, recorded_at = now() WHERE fingerprint <> $1",
                source.fingerprint,
            )
        return await _status(connection, source)


async def status(dsn: str, *, folder: Path = FOLDER) -> DatabaseStatus:
    """Where the database stands, without changing it."""
    async with _connected(dsn) as connection:
        return await _status(connection, read_source(folder))


async def reset(
    admin_dsn: str,
    database: str,
    passwords: Mapping[str, str],
    *,
    folder: Path = FOLDER,
    public_provider: PublicProvider = "r2-public",
) -> None:
    """Deletes the database with everything in it, whoever is connected, and creates it anew."""
    async with _connected(admin_dsn) as connection:
        await _run(connection, "DROP DATABASE IF EXISTS %I WITH (FORCE)", database)
    await create(admin_dsn, database, passwords, folder=folder, public_provider=public_provider)


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[_Connection]:
    """A connection that holds the lock of this module, so that two operators take turns."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": "ninaku db"})
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", _ONE_AT_A_TIME)
        yield connection
    finally:
        await connection.close()


async def _run(connection: _Connection, template: str, *names: str) -> None:
    """Runs a utility statement, which takes no parameters: the server quotes identifiers (%I) and literals (%L)."""
    arguments = ", ".join(f"${place}::text" for place in range(2, len(names) + 2))
    await connection.execute(await connection.fetchval(f"SELECT format($1::text, {arguments})", template, *names))


def _address(admin_dsn: str, login: str, password: str, database: str) -> str:
    parts = urlsplit(admin_dsn)
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{quote(login)}:{quote(password, safe='')}@{host}"
    return urlunsplit((parts.scheme, netloc, f"/{quote(database)}", parts.query, ""))


async def _create_roles(connection: _Connection, passwords: Mapping[str, str]) -> None:
    iterations = int(await connection.fetchval("SHOW scram_iterations"))
    existing = {row["rolname"] for row in await connection.fetch("SELECT rolname FROM pg_roles")}
    for group in GROUPS:
        if group not in existing:
            await _run(connection, "CREATE ROLE %I NOLOGIN", group)
    for login, groups in LOGINS.items():
        if login not in existing:
            await _run(connection, "CREATE ROLE %I LOGIN", login)
        # The verifier, not the password, so that no server log ever has the password.
        verifier = _scram_verifier(passwords[login], iterations)
        await _run(connection, "ALTER ROLE %I PASSWORD %L", login, verifier)
        for group in groups:
            await _run(connection, "GRANT %I TO %I WITH INHERIT TRUE, SET FALSE", group, login)
    if not await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
        # An administrator who is no superuser (a managed server) needs this to give the database to its owner.
        await connection.execute(f"GRANT {MIGRATOR} TO CURRENT_USER WITH SET TRUE, INHERIT FALSE")


def _scram_verifier(password: str, iterations: int) -> str:
    """A SCRAM-SHA-256 verifier as PostgreSQL stores it (RFC 5803)."""
    if not password.isascii() or not password.isprintable() or not password:
        raise MigrationRefused("a password consists of printable ASCII characters")
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()

    def encoded(value: bytes) -> str:
        return base64.b64encode(value).decode()

    return f"SCRAM-SHA-256${iterations}:{encoded(salt)}${encoded(stored_key)}:{encoded(server_key)}"


async def _status(connection: _Connection, source: Source) -> DatabaseStatus:
    schemas = {row["nspname"] for row in await connection.fetch("SELECT nspname FROM pg_namespace")}
    if "ninaku_migrations" not in schemas:
        foreign = sorted(schemas & set(_SCHEMAS))
        if foreign:
            return _refused((), f"the database has schema {foreign[0]} but no ledger: it was not made by this product")
        return DatabaseStatus("empty", (), (), None)  # it gets the end state: no migration is pending
    rows = await connection.fetch("SELECT name, checksum FROM ninaku_migrations.ledger ORDER BY name")
    applied = {row["name"]: row["checksum"] for row in rows}
    known = {script.name: script.checksum for script in source.migrations}
    for name, checksum in applied.items():
        if name not in known:
            return _refused(applied, f"{name} was applied to this database but is missing here: use a newer release")
        if known[name] != checksum:
            return _refused(applied, f"{name} was changed after it was applied to this database: restore it")
    pending = tuple(name for name in known if name not in applied)
    recorded = await connection.fetchval("SELECT fingerprint FROM ninaku_migrations.baseline")
    if not pending and recorded != source.fingerprint:
        return _refused(
            applied,
            "the database was made by another version of database/schema and no migration leads to this one:"
            " delete it and start over with 'ninaku db reset'",
        )
    return DatabaseStatus("behind" if pending else "current", tuple(applied), pending, None)


def _refused(applied: Mapping[str, str] | tuple[()], problem: str) -> DatabaseStatus:
    return DatabaseStatus("refused", tuple(applied), (), problem)


async def _apply_migration(connection: _Connection, script: Script) -> None:
    async with connection.transaction():
        # Services run meanwhile: rather give up than make them queue behind a waiting lock.
        await connection.execute("SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '10min'")
        await _execute(connection, script)
        await connection.execute(
            "INSERT INTO ninaku_migrations.ledger (name, checksum) VALUES ($1, $2)", script.name, script.checksum
        )


async def _install(connection: _Connection, source: Source) -> None:
    await connection.execute(_LEDGER)
    await _execute(connection, source.tables[0])
    # Tables, triggers and policies name functions, whose bodies name tables: the functions come first, unchecked, and
    # once more, checked, with the repeatable part.
    await connection.execute("SET LOCAL check_function_bodies = off")
    for script in source.functions:
        await _execute(connection, script)
    await connection.execute("SET LOCAL check_function_bodies = on")
    for script in source.tables[1:]:
        await _execute(connection, script)
    await connection.executemany(
        "INSERT INTO ninaku_migrations.ledger (name, checksum) VALUES ($1, $2)",
        [(script.name, script.checksum) for script in source.migrations],
    )
    await connection.execute("INSERT INTO ninaku_migrations.baseline (fingerprint) VALUES ($1)", source.fingerprint)


async def _repeat(connection: _Connection, source: Source) -> None:
    for script in (*source.functions, source.grants, *source.seeds):
        await _execute(connection, script)


async def _execute(connection: _Connection, script: Script) -> None:
    try:
        await connection.execute(script.text)
    except asyncpg.InvalidFunctionDefinitionError as error:
        raise MigrationRefused(
            f"{script.name}: {error.args[0]}; the database has another version of this function, which no migration"
            " removes: start over with 'ninaku db reset'"
        ) from error
    except asyncpg.PostgresError as error:
        raise MigrationRefused(f"{script.name}: {error}") from error
