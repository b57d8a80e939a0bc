"""What every test of the database starts from: two organizations, and connections as the logins that call."""

import pytest

from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization, add_person


@pytest.fixture
async def owner(database: DatabaseUnderTest) -> Connection:
    """The migrator, for arranging and inspecting."""
    return await database.owner()


@pytest.fixture
async def admission(database: DatabaseUnderTest) -> Connection:
    return await database.login("ninaku_admission")


@pytest.fixture
async def library(database: DatabaseUnderTest) -> Connection:
    return await database.login("ninaku_library")


@pytest.fixture
async def worker(database: DatabaseUnderTest) -> Connection:
    return await database.login("ninaku_processing_worker")


@pytest.fixture
async def ana(owner: Connection) -> Person:
    """The owner of the café: the organization most tests are about."""
    return await add_person(owner, await add_organization(owner, "Café Central"))


@pytest.fixture
async def bruno(owner: Connection) -> Person:
    """The owner of another organization."""
    return await add_person(owner, await add_organization(owner, "Panadería Norte"))
