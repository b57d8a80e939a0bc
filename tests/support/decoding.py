"""A decoding child for tests: the real process, with the real limits."""

from collections.abc import AsyncIterator

import pytest_asyncio

from services.processing.child import Decoder, DecoderLimits


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def decoder() -> AsyncIterator[Decoder]:
    """One child process for the tests of a module."""
    child = Decoder(DecoderLimits())
    await child.start()
    yield child
    await child.close()
