"""``/openapi.json`` and the documentation page, all of it from this process."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import orjson

from libs.assets.entity_tag import matches
from libs.errors.refusal import Refusal
from services.gateway.exchange import JSON, Answer, Header, Request, header
from services.gateway.operations import Operation, Parameter, Success

_PACKAGE: Final = "swagger_ui_bundle"
_BUNDLED: Final = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
}

# Swagger UI sets style attributes from its script and shows icons as data URLs; everything else is from here alone.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Ninaku Assets API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="documentation"></div>
<noscript>The machine-readable description is at <a href="/openapi.json">/openapi.json</a>.</noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_START: Final = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#documentation",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null,
  persistAuthorization: false,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
"""


@dataclass(frozen=True, slots=True)
class _File:
    """A document that never changes while the process runs."""

    body: bytes
    headers: tuple[Header, ...]
    etag: str


def docs_operations(describe: Callable[[], Mapping[str, Any]]) -> tuple[Operation, ...]:
    """Return ``/openapi.json``, ``/docs`` and the files of the page.

    Args:
        describe: Makes the OpenAPI document; asked once, at the first request, when every operation is known.
    """
    routes = _DocsRoutes(describe)
    not_modified = Success(304, "You hold the present file.")
    return (
        Operation(
            method="GET",
            path="/openapi.json",
            name="openapi",
            tag="Documentation",
            summary="This description",
            description="OpenAPI 3.0.3, written from the routes that are served.",
            handler=routes.openapi,
            successes=(Success(200, "The description.", "application/json"), not_modified),
        ),
        Operation(
            method="GET",
            path="/docs",
            name="docs",
            tag="Documentation",
            summary="The documentation page",
            description="Swagger UI; nothing is loaded from elsewhere.",
            handler=routes.page,
            successes=(Success(200, "The page.", "text/html"), not_modified),
        ),
        Operation(
            method="GET",
            path="/docs/{file}",
            name="docsFile",
            tag="Documentation",
            summary="A file of the documentation page",
            description="Its script and style.",
            handler=routes.file,
            parameters=(
                Parameter(
                    "file", "path", "Name of the file.", {"type": "string", "enum": sorted((*_BUNDLED, "start.js"))}
                ),
            ),
            successes=(Success(200, "The file.", "*/*"), not_modified),
            refusals=("foundation.route_not_found",),
        ),
    )


class _DocsRoutes:
    def __init__(self, describe: Callable[[], Mapping[str, Any]]) -> None:
        self._describe = describe
        self._openapi: _File | None = None
        self._page = _file(_PAGE.encode(), "text/html; charset=utf-8", header("Content-Security-Policy", _POLICY))
        self._files = {name: _file(body, kind) for name, body, kind in _bundled_files()}
        self._files["start.js"] = _file(_START.encode(), "text/javascript; charset=utf-8")

    async def openapi(self, request: Request) -> Answer:
        if self._openapi is None:
            self._openapi = _file(orjson.dumps(self._describe()), JSON.decode())
        return _answer(request, self._openapi)

    async def page(self, request: Request) -> Answer:
        return _answer(request, self._page)

    async def file(self, request: Request) -> Answer:
        found = self._files.get(request.path_parameters["file"])
        if found is None:
            raise Refusal("foundation.route_not_found")
        return _answer(request, found)


def _bundled_files() -> Sequence[tuple[str, bytes, str]]:
    vendor = files(_PACKAGE) / "vendor"
    folder = next(entry for entry in vendor.iterdir() if entry.name.startswith("swagger-ui-"))
    return [(name, (folder / name).read_bytes(), kind) for name, kind in _BUNDLED.items()]


def _file(body: bytes, kind: str, *more: Header) -> _File:
    etag = f'"{hashlib.sha256(body).hexdigest()}"'
    headers = (header("Content-Type", kind), header("ETag", etag), header("Cache-Control", "no-cache"), *more)
    return _File(body, headers, etag)


def _answer(request: Request, document: _File) -> Answer:
    if matches(request.list_header(b"if-none-match"), document.etag):
        return Answer(304, headers=document.headers[1:])
    return Answer(200, document.body, document.headers)
