"""Everything of one asset that lies in a store or a cache, taken away (§16)."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from libs.assets.object_keys import private_keys, public_keys
from libs.assets.public_urls import PublicUrls
from libs.assets.rendition_profile import RENDITIONS
from libs.storage.clients import Provider
from services.processing.cdn import Cdn
from services.processing.domain import StoredObject
from services.processing.storage import Objects

_REMOVALS_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Eraser:
    """Removes objects and purges URLs. `cdn` None: no CDN is configured, and only objects can be removed."""

    objects: Objects
    urls: PublicUrls
    cdn: Cdn | None

    async def remove(self, delivery_token: str, rendition_profile: int, recorded: Iterable[StoredObject] = ()) -> None:
        """Remove the recorded objects, and every key that the token can have.

        An attempt that died before its outcome was recorded left objects that no row names; a token belongs to one
        asset for ever, so nothing else can lie there. All are tried before the first failure is raised.
        """
        places = dict.fromkeys(
            [
                *((each.provider_code, each.object_key) for each in recorded),
                *((Provider.S3_PRIVATE.value, key) for key in private_keys(delivery_token, rendition_profile)),
                *((str(self.objects.public_provider), key) for key in public_keys(delivery_token, rendition_profile)),
            ]
        )
        turns = asyncio.Semaphore(_REMOVALS_AT_ONCE)

        async def remove(provider: str, key: str) -> None:
            async with turns:
                await self.objects.remove(provider, key)

        results = await asyncio.gather(*(remove(*place) for place in places), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def forget(self, delivery_token: str, rendition_profile: int) -> None:
        """Purge every public rendition's URL from the CDN: after the objects are gone, so that it cannot refill."""
        if self.cdn is None:
            return
        names = [rendition.name for rendition in RENDITIONS[rendition_profile]]
        await self.cdn.purge([self.urls.rendition(delivery_token, rendition_profile, name) for name in names])
