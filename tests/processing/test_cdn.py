"""Both CDNs against servers that speak their APIs: the same expectations of each."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from pydantic import SecretStr

from libs.settings.groups import CloudflarePurge, CloudFrontPurge, NoCdn
from services.processing.cdn import Cdn, CdnRefused, CdnUnavailable, open_cdn
from tests.support.cdn import CdnServer, CloudflareServer, CloudFrontServer, cloudflare_server, cloudfront_server

BASE = "https://media.example.com"
PATHS = [f"/a/{'a' * 26}/p1/{name}.webp" for name in ("thumbnail", "tile", "card", "detail")]
URLS = [BASE + path for path in PATHS]


@pytest_asyncio.fixture(params=["cloudflare", "cloudfront"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[CdnServer]:
    if request.param == "cloudflare":
        async with cloudflare_server() as cloudflare:
            yield cloudflare
    else:
        async with cloudfront_server() as cloudfront:
            yield cloudfront


@pytest_asyncio.fixture
async def cdn(server: CdnServer) -> AsyncIterator[Cdn]:
    async with AsyncExitStack() as stack:
        yield await _opened(stack, server.variables)


async def _opened(stack: AsyncExitStack, variables: dict[str, str]) -> Cdn:
    cloudflare = CloudflarePurge.read(variables) if "ASSETS_CDN_ZONE_ID" in variables else None
    cloudfront = CloudFrontPurge.read(variables) if "ASSETS_CDN_DISTRIBUTION_ID" in variables else None
    opened = await stack.enter_async_context(open_cdn(cloudflare, cloudfront, None))
    assert opened is not None
    return opened


async def test_purges_every_url_it_is_given(cdn: Cdn, server: CdnServer) -> None:
    await cdn.purge(URLS)
    assert server.purged in (URLS, PATHS)


async def test_purges_again_what_was_purged_before(cdn: Cdn, server: CdnServer) -> None:
    await cdn.purge(URLS)
    await cdn.purge(URLS)
    assert len(server.purged) == 2 * len(URLS)


@pytest.mark.parametrize("trouble", ["limited", "down", "reset"])
async def test_says_that_it_may_work_later(cdn: Cdn, server: CdnServer, trouble: str) -> None:
    server.trouble = [trouble]
    with pytest.raises(CdnUnavailable):
        await cdn.purge(URLS)
    assert server.purged == []
    await cdn.purge(URLS)
    assert len(server.purged) == len(URLS)


async def test_says_that_it_is_refused_and_names_no_secret(cdn: Cdn, server: CdnServer) -> None:
    server.trouble = ["refused"]
    with pytest.raises(CdnRefused) as refused:
        await cdn.purge(URLS)
    for secret in server.variables.values():
        assert secret not in str(refused.value)
    assert "media.example.com" not in str(refused.value)


async def test_a_cdn_that_nobody_answers_for_may_work_later(server: CdnServer) -> None:
    variables = {
        name: value.replace(str(server.port), "1") if name.endswith("_URL") else value
        for name, value in server.variables.items()
    }
    async with AsyncExitStack() as stack:
        nowhere = await _opened(stack, variables)
        with pytest.raises(CdnUnavailable):
            await nowhere.purge(URLS)


@pytest.mark.parametrize("trouble", ["html", "unsuccessful"])
async def test_takes_an_answer_of_cloudflares_that_is_no_success_for_none(trouble: str) -> None:
    async with cloudflare_server() as server, AsyncExitStack() as stack:
        cdn = await _opened(stack, server.variables)
        server.trouble = [trouble]
        with pytest.raises(CdnUnavailable):
            await cdn.purge(URLS)


async def test_keeps_within_cloudflares_urls_per_call() -> None:
    async with cloudflare_server() as server, AsyncExitStack() as stack:
        cdn = await _opened(stack, server.variables)
        urls = [f"{BASE}/{number}" for number in range(65)]
        await cdn.purge(urls)
        assert server.purged == urls
        assert [len(call) for call in server.calls] == [30, 30, 5]


async def test_tells_how_long_cloudflare_asks_to_wait() -> None:
    async with cloudflare_server() as server, AsyncExitStack() as stack:
        cdn = await _opened(stack, server.variables)
        server.trouble, server.retry_after = ["limited", "limited"], "93"
        with pytest.raises(CdnUnavailable) as limited:
            await cdn.purge(URLS)
        assert limited.value.retry_after_seconds == 93.0
        server.retry_after = "Wed, 21 Oct 2026 07:28:00 GMT"
        with pytest.raises(CdnUnavailable) as limited:
            await cdn.purge(URLS)
        assert limited.value.retry_after_seconds is None


async def test_a_wrong_token_and_a_wrong_zone_are_refused() -> None:
    async with cloudflare_server() as server, AsyncExitStack() as stack:
        for change in ({"ASSETS_CDN_PURGE_TOKEN": "another"}, {"ASSETS_CDN_ZONE_ID": "another"}):
            cdn = await _opened(stack, server.variables | change)
            with pytest.raises(CdnRefused):
                await cdn.purge(URLS)
        assert server.purged == []


async def test_cloudfront_throttles_with_a_status_of_400_and_knows_no_other_distribution() -> None:
    async with cloudfront_server() as server, AsyncExitStack() as stack:
        cdn = await _opened(stack, server.variables)
        server.trouble = ["throttled"]
        with pytest.raises(CdnUnavailable, match="Throttling"):
            await cdn.purge(URLS)
        other = await _opened(stack, server.variables | {"ASSETS_CDN_DISTRIBUTION_ID": "ANOTHER"})
        with pytest.raises(CdnRefused, match="NoSuchDistribution"):
            await other.purge(URLS)


async def test_purges_nothing_where_there_is_said_to_be_no_cdn_and_offers_none_where_nothing_is_said() -> None:
    async with open_cdn(None, None, NoCdn(cdn="none")) as cdn:
        assert cdn is not None
        await cdn.purge(URLS)
    async with open_cdn(None, None, None) as unsaid:
        assert unsaid is None


def test_the_servers_are_reached_by_what_they_say_of_themselves() -> None:
    assert CloudflarePurge.read(CloudflareServer(port=1).variables).purge_token == SecretStr("a-token-that-may-purge")
    assert CloudFrontPurge.read(CloudFrontServer(port=1).variables).endpoint_url == "http://127.0.0.1:1"
