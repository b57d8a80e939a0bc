"""Loopback servers that speak the purge APIs of Cloudflare and CloudFront, their limits and errors included."""

import json
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from tests.support.faults import Barrier, Cut, HttpAnswer, HttpRequest, http_server

ZONE: Final = "023e105f4ecef8ad9ca31a8372d0c353"
TOKEN: Final = "a-token-that-may-purge"
DISTRIBUTION: Final = "EDFDVBD6EXAMPLE"
ACCESS_KEY: Final = ("AKEXAMPLEINVALIDATES", "the-secret-of-invalidations")
_NAMESPACE: Final = "http://cloudfront.amazonaws.com/doc/2020-05-31/"


class CdnServer(Protocol):
    """What tests ask of either server. `trouble` is what the next answers are: taken from its front, one each."""

    trouble: list[str]
    purged: list[str]
    barrier: Barrier | None
    port: int

    @property
    def variables(self) -> dict[str, str]:
        """What a worker's environment holds to reach it."""
        ...


@dataclass
class CloudflareServer:
    """`POST /client/v4/zones/{zone}/purge_cache` as Cloudflare answers it.

    trouble: limited | down | reset | refused | html | unsuccessful.
    """

    trouble: list[str] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    """Every URL purged, in order."""
    calls: list[list[str]] = field(default_factory=list)
    barrier: Barrier | None = None
    urls_per_call: int = 30
    retry_after: str = "7"
    port: int = 0

    @property
    def variables(self) -> dict[str, str]:
        return {
            "ASSETS_CDN_ZONE_ID": ZONE,
            "ASSETS_CDN_PURGE_TOKEN": TOKEN,
            "ASSETS_CDN_API_URL": f"http://127.0.0.1:{self.port}/client/v4",
        }

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        if self.barrier is not None:
            await self.barrier.hold()
        trouble = self.trouble.pop(0) if self.trouble else None
        if trouble == "reset":
            raise Cut
        if trouble == "html":
            return HttpAnswer(502, b"<html>bad gateway</html>", {"Content-Type": "text/html"})
        if trouble == "limited":
            message = "Rate limited. Please wait and consider throttling your request rate"
            return _failure(429, 971, message, {"Retry-After": self.retry_after})
        if trouble == "down":
            return _failure(503, 10001, "Service temporarily unavailable")
        if trouble == "unsuccessful":
            return _failure(200, 1000, "Purge failed")
        if trouble == "refused" or request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _failure(401, 10000, "Authentication error")
        if request.path != f"/client/v4/zones/{ZONE}/purge_cache":
            return _failure(404, 7003, "Could not route to the zone, perhaps your object identifier is invalid?")
        if request.method != "POST":
            return _failure(405, 10405, "Method not allowed for this authentication scheme")
        try:
            files = json.loads(request.body)["files"]
        except (ValueError, KeyError, TypeError):
            return _failure(400, 1012, "Request must contain one of the purge parameters")
        if not isinstance(files, list) or not 1 <= len(files) <= self.urls_per_call:
            return _failure(400, 1094, f"Unable to purge more than {self.urls_per_call} urls per call")
        self.calls.append(files)
        self.purged += files
        return _json(200, {"success": True, "errors": [], "messages": [], "result": {"id": ZONE}})


@dataclass
class CloudFrontServer:
    """`POST /2020-05-31/distribution/{id}/invalidation` as CloudFront answers it.

    trouble: limited | down | reset | refused | throttled.
    """

    trouble: list[str] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    """Every path invalidated, in order."""
    references: list[str] = field(default_factory=list)
    barrier: Barrier | None = None
    port: int = 0

    @property
    def variables(self) -> dict[str, str]:
        return {
            "ASSETS_CDN_DISTRIBUTION_ID": DISTRIBUTION,
            "ASSETS_CDN_ACCESS_KEY_ID": ACCESS_KEY[0],
            "ASSETS_CDN_SECRET_ACCESS_KEY": ACCESS_KEY[1],
            "ASSETS_CDN_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        if self.barrier is not None:
            await self.barrier.hold()
        trouble = self.trouble.pop(0) if self.trouble else None
        if trouble == "reset":
            raise Cut
        if trouble == "limited":
            return _error(400, "TooManyInvalidationsInProgress", "The limit of paths in progress is exceeded.")
        if trouble == "throttled":
            return _error(400, "Throttling", "Rate exceeded")
        if trouble == "down":
            return _error(503, "ServiceUnavailable", "The service is unavailable.")
        signed = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY[0]}/"
        authorization = request.headers.get("authorization", "")
        if (
            trouble == "refused"
            or not authorization.startswith(signed)
            or "/cloudfront/aws4_request" not in authorization
        ):
            return _error(403, "AccessDenied", "The identity may not create invalidations.")
        if request.path != f"/2020-05-31/distribution/{DISTRIBUTION}/invalidation":
            return _error(404, "NoSuchDistribution", "The specified distribution does not exist.")
        batch = ET.fromstring(request.body)
        paths = [each.text or "" for each in batch.iter(f"{{{_NAMESPACE}}}Path")]
        quantity = batch.findtext(f"{{{_NAMESPACE}}}Paths/{{{_NAMESPACE}}}Quantity")
        reference = batch.findtext(f"{{{_NAMESPACE}}}CallerReference") or ""
        if quantity != str(len(paths)) or not paths or not all(path.startswith("/") for path in paths):
            return _error(400, "InvalidArgument", "Your request contains one or more invalid paths.")
        if reference in self.references:
            return _error(409, "InvalidationBatchAlreadyExists", "This reference was used for another batch.")
        self.references.append(reference)
        self.purged += paths
        number = f"I{len(self.references):013d}"
        body = (
            f'<?xml version="1.0"?><Invalidation xmlns="{_NAMESPACE}"><Id>{number}</Id><Status>InProgress</Status>'
            f"<CreateTime>2026-01-01T00:00:00.000Z</CreateTime><InvalidationBatch><Paths><Quantity>{len(paths)}</Quantity>"
            f"</Paths><CallerReference>{reference}</CallerReference></InvalidationBatch></Invalidation>"
        )
        return HttpAnswer(201, body.encode(), {"Content-Type": "text/xml", "Location": f"{request.path}/{number}"})


@asynccontextmanager
async def cloudflare_server() -> AsyncIterator[CloudflareServer]:
    """Cloudflare's API on a free port."""
    server = CloudflareServer()
    async with http_server(server.answer) as server.port:
        yield server


@asynccontextmanager
async def cloudfront_server() -> AsyncIterator[CloudFrontServer]:
    """CloudFront's API on a free port."""
    server = CloudFrontServer()
    async with http_server(server.answer) as server.port:
        yield server


def _json(status: int, document: object, headers: dict[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(document).encode(), {"Content-Type": "application/json", **(headers or {})})


def _failure(status: int, code: int, message: str, headers: dict[str, str] | None = None) -> HttpAnswer:
    errors = [{"code": code, "message": message}]
    return _json(status, {"success": False, "errors": errors, "messages": [], "result": None}, headers)


def _error(status: int, code: str, message: str) -> HttpAnswer:
    body = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>Sender</Type><Code>{code}</Code>'
        f"<Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"
    )
    return HttpAnswer(status, body.encode(), {"Content-Type": "text/xml"})
