"""Refusals as HTTP: the one place where a failure becomes a status and an envelope (DESIGN D4)."""

import re
import unicodedata
from typing import Any, Final

from libs.errors.refusal import Refusal
from services.gateway.exchange import NO_STORE, Answer, header, json_answer

RETRY_AFTER_META: Final = "retryAfterSeconds"
_DEFAULT_RETRY_SECONDS: Final = {429: 60, 503: 5}
_LONGEST_FIELD: Final = 100
_MOST_FIELDS: Final = 20
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_UNREAD: Final = frozenset({408, 413})
"""What is left of such a body is not read: the connection ends with the answer."""
_SECONDS: Final = re.compile(r"[0-9]{1,6}")


def failure_answer(refusal: Refusal) -> Answer:
    """Return the response of a refusal: ``{"error": {"code", "message", "meta"}}`` under the entry's HTTP status.

    ``meta.remedy`` says what the person can do; ``meta.fields`` lists the fields of an invalid request. A failure is
    never cached; 429 and 503 carry ``Retry-After`` in seconds, and 401 names the scheme.
    """
    entry = refusal.entry
    meta: dict[str, Any] = {name: printable(text) for name, text in refusal.meta.items()}
    meta["remedy"] = entry.remedy
    if refusal.violations:
        meta["fields"] = [
            {"field": printable(one.field, _LONGEST_FIELD), "message": printable(one.description)}
            for one in refusal.violations[:_MOST_FIELDS]
        ]
    headers = [NO_STORE]
    if entry.http_status in _DEFAULT_RETRY_SECONDS:
        headers.append(header("Retry-After", _retry_seconds(refusal)))
    if entry.http_status in _UNREAD:
        headers.append(header("Connection", "close"))
    if entry.http_status == 401:
        headers.append(header("WWW-Authenticate", "Bearer"))
    document = {"error": {"code": entry.code, "message": entry.message, "meta": meta}}
    return json_answer(entry.http_status, document, tuple(headers))


def printable(text: str, longest: int = 300) -> str:
    """Return text from outside with control, format and surrogate characters replaced, cut to a length.

    Bidi overrides are format characters: what is echoed must not be able to reorder a log line or a message.
    """
    return "".join("\ufffd" if unicodedata.category(one) in _UNPRINTABLE else one for one in text[:longest])


def _retry_seconds(refusal: Refusal) -> str:
    given = refusal.meta.get(RETRY_AFTER_META, "")
    return given if _SECONDS.fullmatch(given) else str(_DEFAULT_RETRY_SECONDS[refusal.entry.http_status])
