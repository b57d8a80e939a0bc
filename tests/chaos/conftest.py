"""The scenes of this folder. They have an S3 server of their own, so that whatever lies in its buckets is theirs."""

import asyncio
import random
import socket
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
    # A port of its own from the start, so that it comes back at the same address when a test stops and starts it.
    port = next(
        port for port in random.sample(range(12_000, 22_000), 100) if _is_free(port) and _is_free(port + 10_000)
    )
    storage = LocalObjectStorage(tmp_path_factory.mktemp("chaos-storage"), port, die_with_parent=True)
    asyncio.run(storage.start())
    yield storage
    asyncio.run(storage.stop())


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


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
