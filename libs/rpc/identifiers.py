"""UUIDs as callers write them."""

import re
import uuid
from typing import Final

NOBODYS: Final = uuid.UUID(int=0)
"""An id that nothing has. A malformed id is looked up as this one, so that it is answered like an unknown one."""

_CANONICAL: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def parse_uuid(text: str) -> uuid.UUID | None:
    """Return the UUID that `text` is in the usual form, or None. Braces, URNs and missing hyphens are not taken."""
    return uuid.UUID(text) if _CANONICAL.fullmatch(text) else None


def uuid_or_nobodys(text: str) -> uuid.UUID:
    """Return the UUID that `text` is, or the one that nothing has."""
    return parse_uuid(text) or NOBODYS


def parse_idempotency_key(text: str) -> uuid.UUID | None:
    """Return the idempotency key that `text` is, or None: a UUID of version 4 or 7 (§9.1)."""
    key = parse_uuid(text)
    if key is None or key.variant != uuid.RFC_4122 or key.version not in (4, 7):
        return None
    return key
