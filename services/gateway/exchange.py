"""One HTTP request as a handler sees it, and what a handler answers with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.types import Receive

from libs.errors.refusal import FieldViolation, invalid

JSON: Final = b"application/json"
NO_STORE: Final = (b"cache-control", b"no-store")

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose route matched; nothing of its body has been read."""

    method: str
    """As sent: ``HEAD`` stays ``HEAD`` although the handler of ``GET`` answers it."""
    path_parameters: Mapping[str, str]
    """Segments of the raw path: still percent-encoded, so that an encoded slash never becomes another route."""
    query: bytes
    """What follows the question mark."""
    request_id: str
    """Safe to log and to pass on."""
    raw_headers: tuple[Header, ...]
    """Names in lower case, in the order sent."""
    receive: Receive
    """The body's ASGI channel."""

    def header(self, name: bytes) -> str | None:
        """Return the value of a header that stands once, decoded as Latin-1; None when it is absent.

        Raises:
            Refusal: ``foundation.validation_failed`` when the header is repeated: two values would leave it to each
                reader which one counts.
        """
        found: bytes | None = None
        for key, value in self.raw_headers:
            if key == name:
                if found is not None:
                    field = name.decode("ascii").title()
                    raise invalid(FieldViolation(field, "Send this header once."))
                found = value
        return None if found is None else found.decode("latin-1").strip(" \t")

    def values(self, name: bytes) -> list[str]:
        """Return each value of a header, decoded as Latin-1, in the order sent."""
        return [value.decode("latin-1") for key, value in self.raw_headers if key == name]

    def list_header(self, name: bytes) -> str:
        """Return a header that is a list (RFC 9110 §5.3), its repetitions joined; empty when it is absent."""
        return ", ".join(self.values(name))


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: status, body bytes and headers other than Content-Length."""

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()


def json_answer(status: int, document: Mapping[str, Any], headers: tuple[Header, ...] = ()) -> Answer:
    """Return a document as compact UTF-8 JSON."""
    return Answer(status, orjson.dumps(document), ((b"content-type", JSON), *headers))


def header(name: str, value: str) -> Header:
    """Return a response header; the value is ASCII of our own making, never text that somebody sent."""
    return name.lower().encode("ascii"), value.encode("ascii")
