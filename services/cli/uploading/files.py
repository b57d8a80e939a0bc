"""Looks at a file before anything is sent, and explains in words what cannot be sent."""

import stat
from dataclasses import dataclass
from pathlib import Path

from libs.assets.media_types import MAX_UPLOAD_BYTES, MediaType

_HEADER_BYTES = 64
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})


@dataclass(frozen=True)
class SendableFile:
    """A file worth asking for: `size` in bytes, `media_type` by its leading bytes, whatever its name says."""

    path: Path
    size: int
    media_type: MediaType


@dataclass(frozen=True)
class UnsendableFile:
    """A file that would be refused, with the reason and the way out as one sentence each."""

    path: Path
    reason: str
    remedy: str

    @property
    def explanation(self) -> str:
        """Reason and remedy in one line."""
        return f"{self.reason} {self.remedy}".strip()


def inspect_file(path: Path) -> SendableFile | UnsendableFile:
    """Reads size and leading bytes of `path`. Never raises for a file that is missing or unreadable: it says so."""
    try:
        if path.is_dir():
            return UnsendableFile(path, "This is a folder.", "Name the pictures in it.")
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            # A pipe nobody writes to would be waited for, a device never ends.
            return UnsendableFile(path, "This is a pipe or a device, not a file.", "Save the picture as a file.")
        size = facts.st_size
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return UnsendableFile(path, "There is no such file.", "Check the name.")
    except OSError as error:
        return UnsendableFile(path, f"It cannot be read: {error.strerror or error}.", "")
    if size == 0:
        return UnsendableFile(path, "The file is empty.", "Save or download it again.")
    media_type = recognize(header)
    if not isinstance(media_type, MediaType):
        return UnsendableFile(path, media_type, "Save it as JPEG, PNG, WebP or AVIF and send that.")
    if size > MAX_UPLOAD_BYTES:
        return UnsendableFile(
            path,
            f"It is {size / 2**20:.1f} MiB, and the most that is accepted is {MAX_UPLOAD_BYTES // 2**20} MiB.",
            "Export it smaller: a width of 4096 pixels is all that is kept.",
        )
    return SendableFile(path, size, media_type)


def recognize(header: bytes) -> MediaType | str:
    """The media type that the leading bytes show, or a sentence that says what the file is instead."""
    if header.startswith(b"\xff\xd8\xff"):
        return MediaType.JPEG
    if header.startswith(b"\x89PNG\r\n\x1a\n"):
        return MediaType.PNG
    if header[:4] == b"RIFF" and header[8:12] == b"WEBP":
        return MediaType.WEBP
    if header[4:8] == b"ftyp":
        return _recognize_iso_media(header)
    text = header.lstrip(b"\xef\xbb\xbf \t\r\n")[:5].lower()
    if text.startswith((b"<svg", b"<?xml")):
        return "It is an SVG drawing, and only photographs in pixels are accepted."
    if header.startswith((b"GIF87a", b"GIF89a")):
        return "It is a GIF, which is not accepted."
    if header.startswith((b"II*\x00", b"MM\x00*")):
        return "It is a TIFF or a camera's raw file, which is not accepted."
    if header.startswith(b"%PDF"):
        return "It is a PDF, not a picture."
    return "It is not a picture in a format that is accepted."


def _recognize_iso_media(header: bytes) -> MediaType | str:
    length = min(int.from_bytes(header[:4], "big"), len(header))
    brands = [header[8:12]] + [header[start : start + 4] for start in range(16, length - 3, 4)]
    if brands[0] == b"avif" or (brands[0] in {b"mif1", b"miaf"} and b"avif" in brands):
        return MediaType.AVIF
    if brands[0] == b"avis":
        return "It is an animated AVIF, and only still pictures are accepted."
    if _HEIC_BRANDS.intersection(brands):
        return "It is a HEIC photo, the iPhone's own format, which browsers cannot show."
    return "It is a video or another media file, not a picture."
