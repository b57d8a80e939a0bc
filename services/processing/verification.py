"""From staged bytes to a rendered photo: the type is compared here, everything about pixels in the child (§12)."""

from typing import Protocol

from services.processing.domain import FailureCode, ImageRefused, PermanentFailure, RenderedPhoto
from services.processing.signatures import detect_media_type


class RendersPhotos(Protocol):
    """What the decoding child is to its callers."""

    async def render(self, data: bytes, profile: int, seconds: float | None = None) -> RenderedPhoto:
        """Master and renditions of one photo; raises ImageRefused or DecoderFailed."""
        ...


async def verify_and_render(
    data: bytes,
    declared_media_type: str,
    declared_byte_size: int,
    profile: int,
    decoder: RendersPhotos,
    *,
    seconds: float | None = None,
) -> RenderedPhoto:
    """Compare the bytes with what was declared, then render them.

    Raises PermanentFailure (`assets.size_mismatch`), ImageRefused with a code of §12, or DecoderFailed.
    """
    if len(data) != declared_byte_size:
        raise PermanentFailure(FailureCode.SIZE_MISMATCH)
    if detect_media_type(data) != declared_media_type:
        raise ImageRefused(FailureCode.CONTENT_MISMATCH)
    return await decoder.render(data, profile, seconds)
