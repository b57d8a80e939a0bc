"""What an upload may be."""

from enum import StrEnum
from typing import Final

MAX_UPLOAD_BYTES: Final = 10_485_760


class MediaType(StrEnum):
    """The four accepted image types (§7); the values are the exact `Content-Type` a policy is signed for."""

    JPEG = "image/jpeg"
    PNG = "image/png"
    WEBP = "image/webp"
    AVIF = "image/avif"
