"""The services under test."""

from collections.abc import AsyncIterator

import pytest

from tests.service.processes import Services, running_services
from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization, add_person


@pytest.fixture
async def services(database: DatabaseUnderTest) -> AsyncIterator[Services]:
    """Admission, library and delivery with storage configured and the data policy not published."""
    async with running_services(database) as running:
        yield running


@pytest.fixture
async def owner(database: DatabaseUnderTest) -> Connection:
    """The database's owner, for arranging and inspecting."""
    return await database.owner()


@pytest.fixture
async def person(owner: Connection) -> Person:
    """An organization's owner on the plan that has the media library."""
    return await add_person(owner, await add_organization(owner))


@pytest.fixture
async def stranger(owner: Connection) -> Person:
    """The owner of another organization."""
    return await add_person(owner, await add_organization(owner, "Otra Casa"))
