"""Ids that sort by the time they were made."""

import secrets
import time
import uuid


def uuid7() -> uuid.UUID:
    """A fresh UUID of version 7 (RFC 9562 §5.7): 48 bits of milliseconds, 74 random bits of the operating system."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = secrets.randbits(74)
    value = (milliseconds & (1 << 48) - 1) << 80
    value |= 0x7 << 76
    value |= (random_bits >> 62) << 64
    value |= 0b10 << 62
    value |= random_bits & (1 << 62) - 1
    return uuid.UUID(int=value)
