"""Which of the four formats a file is, and whether it is all there, told from its bytes alone (§12).

Nothing here decodes: it reads the few bytes that a format promises to have, so it may run before anything is trusted.
"""

import re
from collections.abc import Iterator
from typing import Final

from libs.assets.media_types import MediaType

_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_MARKER_IN_SCAN: Final = re.compile(rb"\xff+[^\xff\x00\xd0-\xd7]", re.DOTALL)
_MAX_JPEG_SCANS: Final = 100
"""Each scan of a progressive JPEG walks the whole picture again; real encoders write about ten."""

_OTHER_CODECS: Final = frozenset({b"hvc1", b"hev1", b"avc1", b"vvc1", b"evc1", b"jpeg", b"j2k1", b"unci"})
_EOI: Final = 0xD9
_SOS: Final = 0xDA
_STANDALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})


def detect_media_type(data: bytes) -> MediaType | None:
    """The format of the leading bytes, or None when they are not JPEG, PNG, WebP or AVIF.

    An AVIF sequence (major brand `avis`) is not a picture and is None too.
    """
    if data.startswith(_JPEG):
        return MediaType.JPEG
    if data.startswith(_PNG):
        return MediaType.PNG
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return MediaType.WEBP
    if data[4:8] == b"ftyp" and _is_avif(data):
        return MediaType.AVIF
    return None


def is_complete(data: bytes, media_type: MediaType) -> bool:
    """Whether the file reaches its own end mark: EOI for JPEG, IEND for PNG, the announced length for WebP.

    Bytes after the end are nobody's business: they are never copied. AVIF has no end mark; its decoder finds the gap.
    """
    match media_type:
        case MediaType.JPEG:
            return _jpeg_reaches_end(data)
        case MediaType.PNG:
            return _png_reaches_end(data)
        case MediaType.WEBP:
            return len(data) >= 12 and int.from_bytes(data[4:8], "little") + 8 <= len(data)
        case MediaType.AVIF:
            return True


def _is_avif(data: bytes) -> bool:
    size = int.from_bytes(data[:4], "big")
    if size < 16 or data[8:12] == b"avis":
        return False
    box = data[8 : min(size, len(data), 4096)]
    brands = [box[:4], *(box[at : at + 4] for at in range(8, len(box) - 3, 4))]
    return b"avif" in brands


def is_coded_as_av1(data: bytes) -> bool:
    """Whether an HEIF file's pictures are AV1 and no other codec, by the types of its items (ISO 23008-12).

    Brands are promises; the items are what a decoder gets. A file that cannot be walked is not AV1.
    """
    types = _item_types(data)
    return b"av01" in types and types.isdisjoint(_OTHER_CODECS)


def _item_types(data: bytes) -> frozenset[bytes]:
    for kind, start, end in _boxes(data, 0, len(data)):
        if kind == b"meta":
            return frozenset(
                data[entry + 8 : entry + 12]
                for inner, at, stop in _boxes(data, start + 4, end)
                if inner == b"iinf"
                # Version 0 counts its entries in two bytes, any later one in four.
                for name, entry, _ in _boxes(data, at + (6 if data[at : at + 1] == b"\0" else 8), stop)
                if name == b"infe" and data[entry : entry + 1] == b"\x02"
            )
    return frozenset()


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Type, start and end of the content of each box between two places; stops at the first that does not fit."""
    while start + 8 <= end:
        size = int.from_bytes(data[start : start + 4], "big") or end - start
        if size < 8 or start + size > end:
            return
        yield data[start + 4 : start + 8], start + 8, start + size
        start += size


def _jpeg_reaches_end(data: bytes) -> bool:
    at = 2
    scans = 0
    while True:
        # Between segments a decoder resynchronizes on the next marker; so do we, and leave complaints to it.
        at = data.find(b"\xff", at)
        if at < 0:
            return False
        while at < len(data) and data[at] == 0xFF:
            at += 1
        if at >= len(data):
            return False
        marker = data[at]
        at += 1
        if marker == _EOI:
            return scans > 0
        if marker == 0x00 or marker in _STANDALONE:
            continue
        length = int.from_bytes(data[at : at + 2], "big")
        if length < 2:
            return False
        at += length
        if marker == _SOS:
            scans += 1
            if scans > _MAX_JPEG_SCANS:
                return False
            found = _MARKER_IN_SCAN.search(data, at)
            if found is None:
                return False
            at = found.start()


def _png_reaches_end(data: bytes) -> bool:
    at = len(_PNG)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        at += 12 + length
        if kind == b"IEND":
            return at <= len(data)
    return False
