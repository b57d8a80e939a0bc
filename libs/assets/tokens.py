"""The unguessable tokens that name objects in storage and images in public URLs."""

import base64
import re
import secrets
from typing import Final

TOKEN_BYTES: Final = 16
TOKEN_CHARACTERS: Final = 26

_TOKEN: Final = re.compile(r"[a-z2-7]{26}")


def generate_delivery_token() -> str:
    """26 lowercase RFC 4648 base32 characters, unpadded, from 128 random bits of the operating system (§7).

    Delivery tokens and staging tokens have the same shape; neither is ever used twice.
    """
    encoded = base64.b32encode(secrets.token_bytes(TOKEN_BYTES)).decode("ascii")
    return encoded.rstrip("=").lower()


def is_delivery_token(value: str) -> bool:
    """Whether `value` has the shape of a token: the check of `assets_delivery_token_chk`."""
    return _TOKEN.fullmatch(value) is not None
