"""The services under test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from libs.storage.upload_policy import UploadPolicySigner, open_upload_policy_signer
from tests.service.processes import ACCOUNT, Services, running_services
from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization, add_person


@pytest.fixture(scope="session")
def policy_signer() -> Iterator[UploadPolicySigner]:
    """The real signer. One for all tests: its client reads megabytes of service models, and signing is no I/O."""
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    yield loop.run_until_complete(stack.enter_async_context(open_upload_policy_signer(ACCOUNT)))
    loop.run_until_complete(stack.aclose())
    loop.close()


@pytest.fixture
async def services(database: DatabaseUnderTest, policy_signer: UploadPolicySigner) -> AsyncIterator[Services]:
    """Admission, library and delivery with storage configured and the data policy not published."""
    async with running_services(database, policy_signer) as running:
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
