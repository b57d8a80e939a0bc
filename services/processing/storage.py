"""What processing asks of object storage."""

import asyncio
from typing import Final, Protocol

import structlog

from libs.storage.errors import StorageError
from services.processing.domain import StagingObject

_REMOVE_ATTEMPTS: Final = 3
_REMOVE_PAUSE_SECONDS: Final = 0.2


class Objects(Protocol):
    """The object store by provider and key; it raises StorageUnavailable or StorageRefused."""

    @property
    def public_provider(self) -> str:
        """The provider code of public renditions."""
        ...

    async def head(self, provider: str, key: str) -> int | None:
        """The size in bytes, or None when there is no such object."""
        ...

    async def read_at_most(self, provider: str, key: str, max_bytes: int) -> bytes | None:
        """The bytes, at most one more than asked for, or None when there is no such object."""
        ...

    async def put(self, provider: str, key: str, data: bytes, content_type: str, cache_control: str | None) -> None:
        """Store the bytes in place of whatever was there."""
        ...

    async def remove(self, provider: str, key: str) -> None:
        """Remove the object; one that is not there counts as removed."""
        ...


async def remove_staging(objects: Objects, staging: StagingObject) -> bool:
    """Remove a staging object, trying three times; a missing one is done.

    False when it stays: the bucket's lifecycle removes what is below `in/` after a day, so nobody has to ask again.
    """
    for attempt in range(_REMOVE_ATTEMPTS):
        try:
            await objects.remove(staging.provider_code, staging.object_key)
        except (StorageError, KeyError) as error:
            if attempt + 1 == _REMOVE_ATTEMPTS:
                structlog.stdlib.get_logger("ninaku.processing").warning("staging object left behind", error=str(error))
                return False
            await asyncio.sleep(_REMOVE_PAUSE_SECONDS * 2**attempt)
        else:
            return True
    return False
