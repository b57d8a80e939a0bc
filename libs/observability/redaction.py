"""What must never be readable in a log, and what it becomes (§7, SEC-1)."""

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

REDACTED: Final = "[redacted]"

SENSITIVE_WORDS: Final = frozenset(
    {
        "authorization", "cookie", "cookies", "credential", "credentials", "passwd", "password", "passwords", "secret",
        "secrets", "signature", "token", "tokens",
    }
)  # fmt: skip
"""A field is sensitive when one of these is a word of its name, however spelt: `x-amz-signature`, `accessToken`."""

SENSITIVE_NAMES: Final = frozenset({"policy", "private_key", "database_url", "dsn"})
"""A field is sensitive when this is its whole name, so that `retentionPolicy` stays readable."""

_WORD_BREAK: Final = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# `?`, `&` and `=` may be percent-encoded any number of times (%3F, %253F) when a URL travels inside another.
_PARAMETER: Final = re.compile(
    r"""(?:\A|[?&\s"'`,;(\[{<|]|%(?:25)*3F|%(?:25)*26)"""
    r"""(?P<name>(?:[A-Za-z0-9_.-]|%(?:25)*2D)+)(?P<equals>=|%(?:25)*3D)""",
    re.IGNORECASE,
)
_PLAIN_VALUE: Final = re.compile(r"""[^&\s"'`,;<>)\]}|]*""")
_ENCODED_VALUE: Final = re.compile(r"""(?:(?!%(?:25)*26)[^&\s"'`,;<>)\]}|])*""", re.IGNORECASE)
_QUOTED_PAIR: Final = re.compile(
    r"""(?P<open>\\*["'])(?P<name>[A-Za-z0-9_.-]{1,80})(?P=open)\s*:\s*(?P<quote>\\*["'])(?P<value>.*?)(?P=quote)""",
    re.DOTALL,
)
_BEARER: Final = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]+", re.IGNORECASE)
_USER_INFORMATION: Final = re.compile(r"(://[^/\s:@]*:)[^\s/]*@")

# C0, DEL, C1, line and paragraph separators, marks and overrides of writing direction, lone surrogates.
_UNSAFE_CHARACTER: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

_DEEPEST: Final = 8
_SMALLEST_INTEGER: Final = -(2**63)
_LARGEST_INTEGER: Final = 2**63 - 1


def is_sensitive_name(name: str) -> bool:
    """Whether the value of a field of this name must not be logged."""
    if name.lower().replace("-", "_") in SENSITIVE_NAMES:
        return True
    return any(word.lower() in SENSITIVE_WORDS for word in _WORD_BREAK.split(name))


def redact_text(text: str) -> str:
    """`text` with the values of sensitive parameters masked and control characters escaped; the rest is kept.

    Covers query parameters (plain and percent-encoded), quoted `"name": "value"` pairs, bearer tokens, and the password
    of a URL.
    """
    if ":" in text:
        text = _QUOTED_PAIR.sub(_mask_pair, text)
        text = _USER_INFORMATION.sub(rf"\g<1>{REDACTED}@", text)
    text = _BEARER.sub(rf"\1\2{REDACTED}", text)
    return escape_control_characters(_mask_parameters(text))


def redact_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `fields`, at any depth, with sensitive fields masked and every string redacted.

    What JSON does not have becomes text; bytes become their length.
    """
    return {
        escape_control_characters(str(name)): REDACTED if is_sensitive_name(str(name)) else _redact(value, 1)
        for name, value in fields.items()
    }


def escape_control_characters(text: str) -> str:
    """`text` on one line: control and direction-changing characters become `\\n`, `\\x1b`, `\\u202e`."""
    return _UNSAFE_CHARACTER.sub(_escape, text)


def _redact(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return {
                escape_control_characters(str(name)): REDACTED
                if is_sensitive_name(str(name))
                else _redact(item, depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple, set, frozenset)):
            return [_redact(item, depth + 1) for item in value]
    return redact_text(str(value))


def _mask_parameters(text: str) -> str:
    pieces: list[str] = []
    copied = 0
    for match in _PARAMETER.finditer(text):
        if match.start("name") < copied:
            continue
        name = re.sub(r"%(?:25)*2D", "-", match["name"], flags=re.IGNORECASE)
        if not is_sensitive_name(name):
            continue
        shape = _PLAIN_VALUE if match["equals"] == "=" else _ENCODED_VALUE
        value = shape.match(text, match.end())
        end = match.end() if value is None else value.end()
        if end > match.end():
            pieces += (text[copied : match.end()], REDACTED)
            copied = end
    return "".join((*pieces, text[copied:])) if pieces else text


def _mask_pair(match: re.Match[str]) -> str:
    if not is_sensitive_name(match["name"]):
        return match[0]
    return f"{match[0][: match.start('value') - match.start()]}{REDACTED}{match['quote']}"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
