"""The CDN in front of the public store, told to forget the URLs of a purged asset (§16)."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from libs.settings.groups import CloudflarePurge, CloudFrontPurge, NoCdn
from libs.storage.errors import StorageRefused, StorageUnavailable
from libs.storage.invalidations import DistributionAccount, Invalidations, open_invalidations

CLOUDFLARE_URLS_PER_CALL: Final = 30
"""What every plan and every age of the API takes; the present limit is 100."""
CLOUDFRONT_PATHS_PER_CALL: Final = 1_000
"""Of the 3,000 that may be in progress at once."""
_TIMEOUT_SECONDS: Final = 15.0
_MOST_ANSWER_BYTES: Final = 64 * 1024


class CdnFailed(Exception):
    """A purge that is not done. `code` is the provider's own word, or the kind of network failure."""

    def __init__(self, code: str) -> None:
        """Keep the code; neither token nor URL belongs in it."""
        super().__init__(code)
        self.code = code


class CdnUnavailable(CdnFailed):
    """It may work later. `retry_after_seconds` is what the provider asked for, or None."""

    def __init__(self, code: str, retry_after_seconds: float | None = None) -> None:
        """Keep both."""
        super().__init__(code)
        self.retry_after_seconds = retry_after_seconds


class CdnRefused(CdnFailed):
    """The provider does not let us: the token, the zone or the request is wrong, and a person has to look."""


class Cdn(Protocol):
    """A cache that can be told to forget."""

    async def purge(self, urls: Sequence[str]) -> None:
        """Return once the provider has promised to forget every URL; raises CdnUnavailable or CdnRefused."""
        ...


class NothingCached:
    """There is no CDN (`ASSETS_CDN=none`): the public store itself answers, and it has already forgotten."""

    async def purge(self, urls: Sequence[str]) -> None:
        """Nothing remembers."""


class CloudflareCdn:
    """Cloudflare's purge by URL, at most 30 in a call."""

    def __init__(self, http: httpx.AsyncClient, api_url: str, zone_id: str, token: SecretStr) -> None:
        """`http` follows no redirect, since the token must reach nobody else."""
        self._http = http
        self._address = f"{api_url.rstrip('/')}/zones/{zone_id}/purge_cache"
        self._token = token

    async def purge(self, urls: Sequence[str]) -> None:
        """Purge all URLs, call after call; an answer without `"success": true` is none."""
        for start in range(0, len(urls), CLOUDFLARE_URLS_PER_CALL):
            await self._purge_some(urls[start : start + CLOUDFLARE_URLS_PER_CALL])

    async def _purge_some(self, urls: Sequence[str]) -> None:
        try:
            answer = await self._http.post(
                self._address,
                json={"files": list(urls)},
                headers={"Authorization": f"Bearer {self._token.get_secret_value()}"},
            )
        except httpx.HTTPError as error:
            raise CdnUnavailable(type(error).__name__) from None
        document = _json_object(answer)
        if answer.status_code == httpx.codes.OK and document.get("success") is True:
            return
        code = _cloudflare_code(answer.status_code, document)
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise CdnUnavailable(code, _retry_after(answer))
        if answer.status_code >= 500 or answer.status_code in (httpx.codes.REQUEST_TIMEOUT, httpx.codes.OK):
            raise CdnUnavailable(code, _retry_after(answer))
        raise CdnRefused(code)


class CloudFrontCdn:
    """CloudFront's invalidation by path: the URLs without their origin."""

    def __init__(self, invalidations: Invalidations) -> None:
        """`invalidations` of the distribution that serves the public base URL."""
        self._invalidations = invalidations

    async def purge(self, urls: Sequence[str]) -> None:
        """Create the invalidation; CloudFront carries out what it has accepted."""
        paths = [urlsplit(url).path for url in urls]
        for start in range(0, len(paths), CLOUDFRONT_PATHS_PER_CALL):
            try:
                await self._invalidations.create(paths[start : start + CLOUDFRONT_PATHS_PER_CALL])
            except StorageUnavailable as error:
                raise CdnUnavailable(error.code) from None
            except StorageRefused as error:
                raise CdnRefused(error.code) from None


@asynccontextmanager
async def open_cdn(
    cloudflare: CloudflarePurge | None, cloudfront: CloudFrontPurge | None, no_cdn: NoCdn | None
) -> AsyncIterator[Cdn | None]:
    """The CDN that is configured, with its client; None when nothing says which, so that nobody may purge."""
    if cloudflare is not None:
        async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False, follow_redirects=False) as http:
            yield CloudflareCdn(http, cloudflare.api_url, cloudflare.zone_id, cloudflare.purge_token)
    elif cloudfront is not None:
        account = DistributionAccount(
            cloudfront.distribution_id, cloudfront.access_key_id, cloudfront.secret_access_key, cloudfront.endpoint_url
        )
        async with open_invalidations(account) as invalidations:
            yield CloudFrontCdn(invalidations)
    elif no_cdn is not None:
        yield NothingCached()
    else:
        yield None


def _json_object(answer: httpx.Response) -> dict[str, Any]:
    if len(answer.content) > _MOST_ANSWER_BYTES:
        return {}
    with contextlib.suppress(ValueError):
        document = answer.json()
        if isinstance(document, dict):
            return document
    return {}


def _cloudflare_code(status: int, document: dict[str, Any]) -> str:
    errors = document.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    number = first.get("code") if isinstance(first, dict) else None
    # Only the number: the message is the provider's to word, and may repeat what we sent.
    return f"{status}/{number}" if isinstance(number, int) else str(status)


def _retry_after(answer: httpx.Response) -> float | None:
    stated = answer.headers.get("Retry-After", "")
    # The other form, a date, is not what this API sends; without a number the usual schedule holds.
    return float(stated) if stated.isascii() and stated.isdigit() else None
