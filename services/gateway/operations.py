"""What a route declares about itself: the same declaration serves requests and writes ``/openapi.json``."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel

from services.gateway.exchange import Answer, Request

Handler = Callable[[Request], Awaitable[Answer]]

SERVED_ANYWHERE: Final = ("foundation.headers_too_large", "foundation.internal")
"""Codes that every route may answer with."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A header, path or query parameter."""

    name: str
    """As sent: ``X-Organization-Id``, ``assetId``."""
    where: Literal["header", "path", "query"]
    """Which part of the request holds it."""
    description: str
    """Meaning and limits."""
    schema: dict[str, Any]
    """JSON schema of its value."""
    required: bool = True
    """Whether the route refuses without it."""


@dataclass(frozen=True, slots=True)
class Success:
    """A response other than a refusal."""

    status: int
    """HTTP status."""
    description: str
    """When it is given."""
    content: type[BaseModel] | str | None = None
    """The JSON document, another media type, or nothing."""
    headers: tuple[tuple[str, str], ...] = ()
    """Name and meaning of the headers it carries beside ``X-Request-Id``."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    """``GET`` serves ``HEAD`` too."""
    path: str
    """Template: ``/api/v1/assets/{assetId}``."""
    name: str
    """Unique; the ``operationId``, and what logs and metrics call the route."""
    summary: str
    """One line."""
    description: str
    """What it does, what makes it safe to repeat."""
    tag: str
    """The group it is listed under."""
    handler: Handler
    """Answers a request, or raises ``Refusal``."""
    successes: tuple[Success, ...]
    """Every answer that is not a refusal."""
    refusals: tuple[str, ...] = ()
    """Registered codes it refuses with, beside ``SERVED_ANYWHERE``."""
    parameters: tuple[Parameter, ...] = ()
    """Headers and path parameters it reads."""
    body: type[BaseModel] | None = None
    """The JSON body it takes."""
    authenticated: bool = False
    """Whether it needs a session."""
