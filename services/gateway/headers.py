"""The request headers that routes share: who asks, for whom, and under which names."""

import re
import uuid
from dataclasses import dataclass
from typing import Final

from libs.errors.refusal import FieldViolation, Refusal, invalid
from services.gateway.exchange import Request

SESSION_COOKIE: Final = "ninaku_session"

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_BEARER: Final = re.compile(r"bearer +([\x21-\x7e]{1,256})", re.IGNORECASE)
_SESSION: Final = re.compile(r"[\x21-\x7e]{1,256}")
_KEY_VERSIONS: Final = frozenset({4, 7})


@dataclass(frozen=True, slots=True)
class Caller:
    """What is passed on about a caller; nothing of it has been checked here beyond its shape."""

    session: str
    """The session token: printable ASCII, never logged."""
    organization_id: str
    """Canonical lower-case UUID."""
    request_id: str
    """Correlates the logs of every service."""


def caller(request: Request) -> Caller:
    """Return who asks: a bearer token, else the session cookie; and the organization, which no cookie can name.

    Raises:
        Refusal: ``identity.unauthenticated`` without a well-formed session; ``foundation.validation_failed`` without a
            well-formed ``X-Organization-Id``.
    """
    session = _session(request)
    organization = request.header(b"x-organization-id") or ""
    if _UUID.fullmatch(organization) is None:
        raise invalid(FieldViolation("X-Organization-Id", "Name the organization you act for by its UUID."))
    return Caller(session, organization.lower(), request.request_id)


def idempotency_key(request: Request) -> str:
    """Return the required ``Idempotency-Key`` as a canonical lower-case UUID.

    Raises:
        Refusal: ``foundation.validation_failed`` unless it is a UUID of version 4 or 7.
    """
    given = request.header(b"idempotency-key") or ""
    if _UUID.fullmatch(given) is None or not _is_key(uuid.UUID(given)):
        raise invalid(FieldViolation("Idempotency-Key", "Name this request by a UUID of version 4 or 7."))
    return given.lower()


def _is_key(value: uuid.UUID) -> bool:
    return value.variant == uuid.RFC_4122 and value.version in _KEY_VERSIONS


def _session(request: Request) -> str:
    authorization = request.header(b"authorization")
    if authorization is not None:
        # A header that is there but wrong is not repaired from a cookie: the caller meant the header.
        match = _BEARER.fullmatch(authorization)
        if match is None:
            raise Refusal("identity.unauthenticated")
        return match[1]
    session = _session_cookie(request)
    if session is None or _SESSION.fullmatch(session) is None:
        raise Refusal("identity.unauthenticated")
    return session


def _session_cookie(request: Request) -> str | None:
    """The one session cookie; the other cookies of the site may look as they like (RFC 6265 §5.4 sends them all).

    Two of them are none: a neighbouring site can add one of its own, and which one counts must not be left to chance.
    """
    found: str | None = None
    for line in request.values(b"cookie"):
        for pair in line.split(";"):
            name, _, value = pair.strip(" \t").partition("=")
            if name.rstrip(" \t") != SESSION_COOKIE:
                continue
            if found is not None:
                return None
            found = value.strip(" \t")
    if found is not None and len(found) >= 2 and found[0] == found[-1] == '"':
        return found[1:-1]
    return found
