"""The facts of a WebP file, read from its container: what is checked before the child is believed (DESIGN D6)."""

from dataclasses import dataclass
from typing import Final

PIXEL_CHUNKS: Final = frozenset({b"VP8 ", b"VP8L", b"VP8X", b"ALPH"})
"""The chunks that hold a still picture; EXIF, XMP, ICCP, ANIM and unknown ones are not among them."""

_VP8_SYNC: Final = b"\x9d\x01\x2a"
_VP8L_SIGNATURE: Final = 0x2F


class NotWebp(Exception):
    """The bytes are not a well-formed WebP container."""


@dataclass(frozen=True, slots=True)
class WebpFacts:
    """Canvas size in pixels and the four-character codes of the chunks, in file order."""

    width: int
    height: int
    chunks: tuple[bytes, ...]


def read_webp(data: bytes) -> WebpFacts:
    """Read the container of a WebP held in memory. Raises NotWebp when a length or a header does not add up."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or int.from_bytes(data[4:8], "little") + 8 != len(data):
        raise NotWebp("the RIFF header does not fit the bytes")
    chunks: list[bytes] = []
    size: tuple[int, int] | None = None
    at = 12
    while at < len(data):
        kind, length = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if at + 8 + length > len(data):
            raise NotWebp("a chunk is longer than the file")
        payload = data[at + 8 : at + 8 + min(length, 16)]
        if size is None:
            size = _size(kind, payload)
        chunks.append(kind)
        at += 8 + length + (length & 1)
    if size is None:
        raise NotWebp("no chunk holds a picture")
    return WebpFacts(size[0], size[1], tuple(chunks))


def _size(kind: bytes, payload: bytes) -> tuple[int, int] | None:
    if kind == b"VP8X" and len(payload) >= 10:
        return 1 + int.from_bytes(payload[4:7], "little"), 1 + int.from_bytes(payload[7:10], "little")
    if kind == b"VP8 " and payload[3:6] == _VP8_SYNC:
        return int.from_bytes(payload[6:8], "little") & 0x3FFF, int.from_bytes(payload[8:10], "little") & 0x3FFF
    if kind == b"VP8L" and payload[:1] == bytes([_VP8L_SIGNATURE]):
        bits = int.from_bytes(payload[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None
