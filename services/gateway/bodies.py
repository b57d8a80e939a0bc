"""Request bodies: bounded before they are read, strict JSON, strict models."""

import asyncio
import json
import re
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from libs.errors.refusal import FieldViolation, Refusal, invalid
from services.gateway.exchange import Request

MAX_BODY_BYTES: Final = 64 * 1024
BODY_SECONDS: Final = 10.0

_JSON_MEDIA_TYPE: Final = re.compile(r'application/json[ \t]*(;[ \t]*charset="?utf-8"?[ \t]*)?', re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")

M = TypeVar("M", bound=BaseModel)


async def read_model(request: Request, model: type[M]) -> M:
    """Read the body as one strict JSON object of the given model.

    Raises:
        Refusal: ``foundation.media_type_required`` (another Content-Type), ``foundation.body_too_large`` (over 64 KiB,
            by its Content-Length before anything is read, or as soon as the bytes exceed it),
            ``foundation.body_incomplete`` (not all there after ten seconds), ``foundation.malformed_body`` (not one
            JSON object in UTF-8 without repeated keys), ``foundation.validation_failed`` (naming each field).
    """
    if _JSON_MEDIA_TYPE.fullmatch(request.header(b"content-type") or "") is None:
        raise Refusal("foundation.media_type_required")
    document = parse_object(await _read(request))
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise invalid(*_violations(error)) from None


async def refuse_body(request: Request) -> None:
    """Refuse a request that carries a body where the route takes none (``foundation.validation_failed``)."""
    if await _read(request):
        raise invalid(FieldViolation("body", "This route takes no body."))


def refuse_query(request: Request) -> None:
    """Refuse any query parameter where the route takes none (``foundation.validation_failed``)."""
    if request.query:
        name = request.query.partition(b"&")[0].partition(b"=")[0]
        raise invalid(FieldViolation(name.decode("latin-1"), "There is no such query parameter."))


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse one JSON object (RFC 8259): UTF-8, no repeated keys, no NaN or Infinity.

    Raises:
        Refusal: ``foundation.malformed_body``.
    """
    try:
        document = json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        # ValueError covers bad UTF-8, bad JSON, repeated keys and integers too long to convert.
        raise Refusal("foundation.malformed_body") from None
    if not isinstance(document, dict):
        raise Refusal("foundation.malformed_body")
    return document


async def _read(request: Request) -> bytes:
    length = request.header(b"content-length")
    if length is not None and (_LENGTH.fullmatch(length) is None or int(length) > MAX_BODY_BYTES):
        raise Refusal("foundation.body_too_large")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _collect(request)
    except TimeoutError:
        raise Refusal("foundation.body_incomplete") from None


async def _collect(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refusal("foundation.body_incomplete")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise Refusal("foundation.body_too_large")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is repeated")
    return document


def _no_constant(_: str) -> None:
    raise ValueError("not a JSON number")


def _violations(error: ValidationError) -> list[FieldViolation]:
    # Never the input: what was sent may be personal.
    return [
        FieldViolation(
            ".".join(str(part) for part in item["loc"]) or "body", _SENTENCES.get(item["type"]) or f"{item['msg']}."
        )
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]


_SENTENCES: Final = {
    "extra_forbidden": "There is no such field.",
    "missing": "This field is required.",
    "int_type": "Send a whole number, without quotes or a decimal point.",
    "string_unicode": "Send text that is valid Unicode.",
    "string_type": "Send a string, or leave the field out.",
}
