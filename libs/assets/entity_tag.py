"""Strong entity tags of representations."""

import hashlib
import re
from typing import Any, Final

from libs.assets.canonical_json import canonical_json

_LISTED_TAG: Final = re.compile(r'[ \t]*(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|\Z)')


def entity_tag(document: Any) -> str:
    """The strong, quoted SHA-256 tag of a document's canonical JSON (§9.2)."""
    return f'"{hashlib.sha256(canonical_json(document)).hexdigest()}"'


def matches(if_none_match: str, tag: str) -> bool:
    """Whether an `If-None-Match` header names `tag`: `*`, or a list in which weak tags count too (RFC 9110 §13.1.2).

    A header that is not a list of tags matches nothing, so the answer is the whole representation.
    """
    if if_none_match.strip() == "*":
        return True
    position = 0
    found = False
    while position < len(if_none_match):
        match = _LISTED_TAG.match(if_none_match, position)
        if match is None:
            return False
        found = found or match[1] == tag
        position = match.end()
    return found
