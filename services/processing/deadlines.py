"""The end of a lease as handlers feel it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.processing.domain import StorageDeadlinePassed


@asynccontextmanager
async def storage_until(deadline: float) -> AsyncIterator[None]:
    """Cut off what is not done at `deadline` of the event loop's clock, as StorageDeadlinePassed."""
    if asyncio.get_running_loop().time() >= deadline:
        # A worker that stood still past its lease sends nothing any more.
        raise StorageDeadlinePassed
    timeout = asyncio.timeout_at(deadline)
    try:
        async with timeout:
            yield
    except TimeoutError as error:
        if timeout.expired():
            raise StorageDeadlinePassed from error
        raise
