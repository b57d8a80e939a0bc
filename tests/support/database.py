"""A real PostgreSQL for each test process, and a database of its own, cloned from a template, for each test."""

import asyncio
import hashlib
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from database import migrate
from services.cli.local.postgres import LocalPostgres

Connection = Any  # asyncpg's own type, whose generic parameter says nothing here

PASSWORDS = {login: f"password-of-{login}" for login in migrate.LOGINS}
_TEMPLATE = "template_of_the_tests"


@dataclass(frozen=True)
class Person:
    """A member with a session: `token` is what a client sends, `token_hash` its SHA-256."""

    organization_id: UUID
    membership_id: UUID
    user_id: UUID
    actor_id: UUID
    email: str
    token: str
    token_hash: bytes


class DatabaseUnderTest:
    """One test's own database. Connections opened through it are closed after the test."""

    def __init__(self, server: LocalPostgres, name: str) -> None:
        self.server = server
        self.name = name
        self._connections: list[Connection] = []

    def dsn(self, login: str = migrate.MIGRATOR) -> str:
        """The address of this database for a login of `migrate.LOGINS`."""
        return self.server.dsn(login, PASSWORDS[login], self.name)

    async def login(self, login: str) -> Connection:
        """A new connection as that login."""
        connection = await asyncpg.connect(self.dsn(login))
        self._connections.append(connection)
        return connection

    async def owner(self) -> Connection:
        """A new connection as the migrator, who owns everything: for arranging and inspecting."""
        return await self.login(migrate.MIGRATOR)

    async def close(self) -> None:
        """Closes what is open, in whatever state the test left it."""
        for connection in self._connections:
            connection.terminate()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[LocalPostgres]:
    """The running server of this test process."""
    # Not below pytest's own folder, which only its owner may enter: the server runs as another user under root.
    folder = Path(tempfile.mkdtemp(prefix="ninaku-tests-"))
    folder.chmod(0o711)
    server = LocalPostgres(folder / "postgres", durable=False, die_with_parent=True)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())
    server.remove()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def database_template(postgres_server: LocalPostgres) -> str:
    """The name of an installed database that nobody connects to."""
    asyncio.run(migrate.create(postgres_server.admin_dsn, _TEMPLATE, PASSWORDS))
    return _TEMPLATE


@pytest.fixture
async def database(postgres_server: LocalPostgres, database_template: str) -> AsyncIterator[DatabaseUnderTest]:
    """A fresh database, as `ninaku db create` leaves it."""
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres_server.admin_dsn)
    try:
        await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{database_template}" OWNER {migrate.MIGRATOR}')
        await admin.execute(f'REVOKE ALL ON DATABASE "{name}" FROM PUBLIC')
        await admin.execute(f'GRANT CONNECT ON DATABASE "{name}" TO {", ".join(migrate.LOGINS)}')
        under_test = DatabaseUnderTest(postgres_server, name)
        yield under_test
        await under_test.close()
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await admin.close()


async def add_organization(owner: Connection, name: str = "Café Central", plan: str | None = "pionero") -> UUID:
    """An organization on the active version of the plan, or on none."""
    created: UUID = await owner.fetchval("SELECT identity.create_organization($1, $2)", name, plan)
    return created


async def add_person(
    owner: Connection, organization_id: UUID, role: str = "organization_owner", business_unit: str | None = None
) -> Person:
    """A new user with that role, organization-wide or for one business unit, and a living session."""
    unit_id = business_unit and await owner.fetchval(
        "SELECT organization.create_business_unit($1, $2)", organization_id, business_unit
    )
    email = f"{role}-{secrets.token_hex(4)}@example.com"
    member = await owner.fetchrow(
        "SELECT * FROM identity.add_member($1, $2, $3, $4, $5)", organization_id, email, role, role, unit_id
    )
    token = secrets.token_urlsafe(32)
    token_hash = hashlib.sha256(token.encode()).digest()
    await owner.fetchval("SELECT identity.create_session($1, $2)", email, token_hash)
    return Person(
        organization_id, member["membership_id"], member["user_id"], member["actor_id"], email, token, token_hash
    )
