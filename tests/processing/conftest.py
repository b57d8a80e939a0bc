"""A worker's parts on a real database and a real S3 server."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from opentelemetry.metrics import NoOpMeter

from libs.database.engine import Database, create_database
from services.processing.instruments import Instruments
from services.processing.repository import ProcessingRepository
from tests.support.database import DatabaseUnderTest
from tests.support.uploads import Uploads, open_uploads


@pytest_asyncio.fixture
async def worker_database(database: DatabaseUnderTest) -> AsyncIterator[Database]:
    pool = create_database(
        database.dsn("ninaku_processing_worker"), pool_size=3, application_name="ninaku-media-worker"
    )
    yield pool
    await pool.close()


@pytest.fixture
def repository(worker_database: Database) -> ProcessingRepository:
    return ProcessingRepository(worker_database, "worker under test")


@pytest_asyncio.fixture
async def uploads(database: DatabaseUnderTest) -> Uploads:
    return await open_uploads(database)


@pytest.fixture
def instruments() -> Instruments:
    return Instruments(NoOpMeter("test"))
