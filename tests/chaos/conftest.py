"""The scenes of this folder. They have an S3 server of their own, so that whatever lies in its buckets is theirs."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from services.cli.local.object_storage import LocalObjectStorage
from tests.chaos.scene import Scene, empty, operator_store
from tests.support.cdn import cloudflare_server
from tests.support.database import DatabaseUnderTest
from tests.support.faults import HttpProxy, PostgresProxy
from tests.support.uploads import open_uploads


@pytest.fixture(scope="session")
def chaos_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalObjectStorage]:
    """An S3 server that only scenes use."""
    storage = LocalObjectStorage(tmp_path_factory.mktemp("chaos-storage"), die_with_parent=True)
    asyncio.run(storage.start())
    yield storage
    asyncio.run(storage.stop())


@pytest_asyncio.fixture
async def scene(database: DatabaseUnderTest, chaos_storage: LocalObjectStorage) -> AsyncIterator[Scene]:
    """A world of its own, empty."""
    uploads = await open_uploads(database)
    s3 = HttpProxy("127.0.0.1", chaos_storage.port)
    postgres = PostgresProxy("127.0.0.1", database.server.port)
    async with (
        operator_store(chaos_storage) as store,
        cloudflare_server() as cdn,
        s3.running(),
        postgres.running(),
    ):
        await empty(store)
        yield Scene(database, chaos_storage, await database.owner(), uploads, store, s3, postgres, cdn)
