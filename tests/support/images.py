"""Pictures made for tests, with Pillow and by hand: the code under test uses libvips, so neither vouches for itself."""

import io
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from PIL import Image, ImageCms, ImageStat

Colour = tuple[int, int, int]

RED: Final[Colour] = (200, 40, 40)
GREEN: Final[Colour] = (40, 160, 60)
BLUE: Final[Colour] = (40, 60, 190)
YELLOW: Final[Colour] = (220, 200, 60)
QUADRANTS: Final[tuple[Colour, Colour, Colour, Colour]] = (RED, GREEN, BLUE, YELLOW)
"""Top left, top right, bottom left, bottom right of `quadrants`."""

CANARY: Final = "CANARY-7f3a-private"


def quadrants(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A picture whose four quarters have four colours, so that every turn and flip shows."""
    image = Image.new("RGB", (width, height), YELLOW)
    image.paste(RED, (0, 0, width // 2, height // 2))
    image.paste(GREEN, (width // 2, 0, width, height // 2))
    image.paste(BLUE, (0, height // 2, width // 2, height))
    return image.convert(mode)


def encode(image: Image.Image, image_format: str, **options: Any) -> bytes:
    """The picture as a file of `image_format` (JPEG, PNG, WEBP, AVIF)."""
    buffer = io.BytesIO()
    image.save(buffer, format=image_format, **options)
    return buffer.getvalue()


def jpeg(width: int, height: int, **options: Any) -> bytes:
    """A JPEG of the four quadrants."""
    return encode(quadrants(width, height), "JPEG", **{"quality": 90, **options})


def exif(orientation: int = 1, gps: bool = False) -> bytes:
    """An EXIF block with an orientation, a canary, and on request a position in the GPS directory."""
    block = Image.Exif()
    block[0x0112] = orientation
    block[0x010E] = CANARY
    if gps:
        block.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 12.0), 3: "E", 4: (13.0, 24.0, 36.0), 29: CANARY})
    return block.tobytes()


def jpeg_with_segments(data: bytes, segments: Iterable[tuple[int, bytes]]) -> bytes:
    """The JPEG with (marker, payload) segments put straight after its SOI."""
    extra = b"".join(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body for marker, body in segments)
    return data[:2] + extra + data[2:]


def without_jpeg_segment(data: bytes, marker: int) -> bytes:
    """The JPEG without its segments of that marker before the first scan."""
    at, kept = 2, [data[:2]]
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] != marker:
            kept.append(data[at:end])
        at = end
    return b"".join([*kept, data[at:]])


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """One PNG chunk with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    width: int, height: int, bit_depth: int, colour_type: int, rows: Sequence[bytes], chunks: Iterable[bytes] = ()
) -> bytes:
    """A PNG written by hand: rows without filter bytes, and ready chunks that go before the pixels."""
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bit_depth, colour_type, 0, 0, 0))
    pixels = png_chunk(b"IDAT", zlib.compress(b"".join(b"\x00" + row for row in rows), 1))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + pixels + png_chunk(b"IEND", b"")


def png_profile_chunk(profile: bytes) -> bytes:
    """An iCCP chunk that holds the profile."""
    return png_chunk(b"iCCP", b"test\x00\x00" + zlib.compress(profile))


P3_COLUMNS: Final = ((0.51512, 0.24120, -0.00105), (0.29198, 0.69225, 0.04189), (0.15710, 0.06657, 0.78407))
"""The columns of Display P3's matrix, adapted to D50: red, green, blue."""


def icc_profile(columns: Sequence[Sequence[float]] = P3_COLUMNS, gamma: float = 2.2) -> bytes:
    """A version 2 display profile with the given matrix columns (XYZ of red, green and blue under D50) and gamma."""

    def xyz(values: Sequence[float]) -> bytes:
        return b"XYZ \x00\x00\x00\x00" + struct.pack(">3i", *(round(value * 65536) for value in values))

    curve = b"curv\x00\x00\x00\x00" + struct.pack(">IH", 1, round(gamma * 256)) + b"\x00\x00"
    text = b"text\x00\x00\x00\x00none\x00\x00\x00\x00"
    name = b"test profile\x00"
    description = b"desc\x00\x00\x00\x00" + struct.pack(">I", len(name)) + name + b"\x00" * 79
    tags = [
        (b"desc", description),
        (b"cprt", text),
        (b"wtpt", xyz((0.9642, 1.0, 0.8249))),
        (b"rXYZ", xyz(columns[0])),
        (b"gXYZ", xyz(columns[1])),
        (b"bXYZ", xyz(columns[2])),
        *((kind, curve) for kind in (b"rTRC", b"gTRC", b"bTRC")),
    ]
    offset = 128 + 4 + 12 * len(tags)
    table, bodies = struct.pack(">I", len(tags)), b""
    for kind, body in tags:
        table += kind + struct.pack(">II", offset + len(bodies), len(body))
        bodies += body + b"\x00" * (-len(body) % 4)
    head = struct.pack(">I4sI4s4s4s", offset + len(bodies), b"lcms", 0x02400000, b"mntr", b"RGB ", b"XYZ ")
    head += struct.pack(">6H4s4s", 2026, 1, 1, 0, 0, 0, b"acsp", b"APPL") + b"\x00" * 24
    head += struct.pack(">3i", round(0.9642 * 65536), 65536, round(0.8249 * 65536))
    return head.ljust(128, b"\x00") + table + bodies


def opened(data: bytes) -> Image.Image:
    """The picture that Pillow reads from the bytes, fully decoded."""
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def flattened(data: bytes) -> Image.Image:
    """The picture on white, as a viewer without transparency sees it."""
    image = opened(data).convert("RGBA")
    ground = Image.new("RGBA", image.size, (255, 255, 255, 255))
    ground.alpha_composite(image)
    return ground.convert("RGB")


def quadrant_colours(data: bytes) -> list[Colour]:
    """The mean colour of each quadrant on white: top left, top right, bottom left, bottom right."""
    image = flattened(data)
    width, height = image.size
    boxes = (
        (0, 0, width // 2, height // 2),
        (width // 2, 0, width, height // 2),
        (0, height // 2, width // 2, height),
        (width // 2, height // 2, width, height),
    )
    means = [ImageStat.Stat(image.crop(box)).mean for box in boxes]
    return [(round(mean[0]), round(mean[1]), round(mean[2])) for mean in means]


def furthest_channel(found: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> int:
    """The largest difference of any channel between two lists of colours."""
    return max(abs(a - b) for one, other in zip(found, wanted, strict=True) for a, b in zip(one, other, strict=True))


def opened_profile(profile: bytes) -> ImageCms.ImageCmsProfile:
    """The profile as Pillow's colour management reads it."""
    return ImageCms.ImageCmsProfile(io.BytesIO(profile))


def corner_colours(data: bytes) -> list[Colour]:
    """The mean colour of an eighth of each corner on white, in the order of `quadrant_colours`."""
    image = flattened(data)
    width, height = image.size
    x, y = width // 8, height // 8
    boxes = ((0, 0, x, y), (width - x, 0, width, y), (0, height - y, x, height), (width - x, height - y, width, height))
    means = [ImageStat.Stat(image.crop(box)).mean for box in boxes]
    return [(round(mean[0]), round(mean[1]), round(mean[2])) for mean in means]
