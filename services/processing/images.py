"""Bytes in, WebP out: the one module that touches libvips. It runs in the decoding child only (DESIGN D6).

One decode per photo. The header is judged before a pixel is decoded, the loader is chosen by the magic bytes, and
whatever is not one of the four loaders or the WebP saver is blocked. Everything that is not a pixel stays behind.
"""

import itertools
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final, Protocol, cast

import pyvips

from libs.assets.media_types import MediaType
from libs.assets.rendition_profile import RENDITIONS, Fit, Rendition
from services.processing.domain import (
    MASTER_EDGE,
    MAX_PIXELS,
    MAX_SIDE,
    MIN_SIDE,
    ORIGINAL_VARIANT,
    FailureCode,
    ImageRefused,
    RenderedImage,
    RenderedPhoto,
)
from services.processing.signatures import detect_media_type, is_coded_as_av1, is_complete

MASTER_QUALITY: Final = 90
MASTER_EFFORT: Final = 2
"""The master is most of the work; effort 2 halves it and costs about half a decibel, not bytes."""
RENDITION_EFFORT: Final = 4

_ALLOWED_OPERATIONS: Final = (
    "VipsForeignLoadJpegBuffer",
    "VipsForeignLoadPngBuffer",
    "VipsForeignLoadWebpBuffer",
    "VipsForeignLoadHeifBuffer",
    "VipsForeignSaveWebpBuffer",
)
_LOADERS: Final[Mapping[MediaType, str]] = MappingProxyType(
    {
        MediaType.JPEG: "jpegload_buffer",
        MediaType.PNG: "pngload_buffer",
        MediaType.WEBP: "webpload_buffer",
        MediaType.AVIF: "heifload_buffer",
    }
)
_COLOUR_SAMPLE: Final = bytes(
    channel for colour in itertools.product((0, 16, 51, 85, 119, 153, 187, 221, 255), repeat=3) for channel in colour
)
_OUT_OF_MEMORY: Final = re.compile(r"out of memory|insufficient memory|memory alloc|cannot allocate", re.IGNORECASE)
_ANNOUNCES_TOO_MUCH: Final = re.compile(r"security limit", re.IGNORECASE)
"""libheif files its own limits under memory, but nothing was asked of the system: the file says what cannot be."""
_COMPLAINTS: Final = (pyvips.Error, UnicodeDecodeError)
"""How libvips says no: its words can quote bytes of the file, and pyvips fails on those that are no UTF-8."""
_TURNS: Final[Mapping[int, tuple[str | None, str | None]]] = MappingProxyType(
    {
        2: (None, "horizontal"),
        3: ("d180", None),
        4: (None, "vertical"),
        5: ("d90", "horizontal"),
        6: ("d90", None),
        7: ("d90", "vertical"),
        8: ("d270", None),
    }
)
"""EXIF orientation to (rotation clockwise, flip after it); every other value means upright."""


class Load(Protocol):
    """Opens a picture: the name of a libvips loader and the bytes; only the header is read until pixels are asked."""

    def __call__(self, loader: str, data: bytes) -> pyvips.Image:
        """The opened picture; raises pyvips.Error when its header cannot be read."""
        ...


def contain() -> None:
    """Set libvips up for hostile input: nothing cached, every loader and saver blocked but the five we use."""
    pyvips.cache_set_max(0)
    for operation in ("VipsForeignLoad", "VipsForeignSave"):
        pyvips.operation_block_set(operation, True)
    for operation in _ALLOWED_OPERATIONS:
        pyvips.operation_block_set(operation, False)


def load_with_libvips(loader: str, data: bytes) -> pyvips.Image:
    """Open with the named loader, refusing at the first warning of the decoder."""
    return getattr(pyvips.Image, loader)(data, access="sequential", fail_on="warning")


def render(data: bytes, profile: int, load: Load = load_with_libvips) -> RenderedPhoto:
    """Decode once and make the master and every rendition of `profile` (§12, §13).

    Raises ImageRefused with the code of the failure matrix, MemoryError when libvips could not allocate, and whatever
    libvips raises when an encoder fails: that is our fault, not the photo's.
    """
    media_type = detect_media_type(data)
    if media_type is None:
        raise ImageRefused(FailureCode.CONTENT_MISMATCH)
    try:
        source = load(_LOADERS[media_type], data)
        _judge_header(source, media_type, data)
        if not is_complete(data, media_type):
            raise ImageRefused(FailureCode.IMAGE_CORRUPT)
        orientation = _orientation(source, media_type)
        pixels = _to_srgb(_fit_master(source)).copy_memory()
    except _COMPLAINTS as error:
        words = _words(error)
        if _OUT_OF_MEMORY.search(words) and not _ANNOUNCES_TOO_MUCH.search(words):
            raise MemoryError("the picture does not fit into the decoder's memory") from error
        raise ImageRefused(FailureCode.IMAGE_CORRUPT) from error
    width, height = source.width, source.height
    if orientation >= 5:
        width, height = height, width
    del source
    master = _turn(pixels, orientation)
    del pixels
    with ThreadPoolExecutor(max_workers=1) as beside:
        # libvips lets go of the interpreter while it encodes, so the two halves take the two cores.
        encoding = beside.submit(_encode, ORIGINAL_VARIANT, master, MASTER_QUALITY, MASTER_EFFORT)
        renditions = _renditions(master, RENDITIONS[profile])
        return RenderedPhoto(width, height, (encoding.result(), *renditions))


def _words(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        pyvips.vips_lib.vips_error_clear()  # what could not be read still lies there, and the next error would quote it
        return error.object.decode("utf-8", "replace")
    return str(error)


def _judge_header(image: pyvips.Image, media_type: MediaType, data: bytes) -> None:
    # libvips tells the codec from the major brand alone, which may be the general `mif1` for an AVIF too.
    if media_type is MediaType.AVIF and image.get("heif-compression") != "av1" and not is_coded_as_av1(data):
        raise ImageRefused(FailureCode.CONTENT_MISMATCH)
    if image.width < MIN_SIDE or image.height < MIN_SIDE:
        raise ImageRefused(FailureCode.IMAGE_TOO_SMALL)
    if max(image.width, image.height) > MAX_SIDE or image.width * image.height > MAX_PIXELS[media_type]:
        raise ImageRefused(FailureCode.IMAGE_TOO_LARGE)


def _orientation(image: pyvips.Image, media_type: MediaType) -> int:
    # AVIF turns by irot and imir, which libheif has applied; EXIF on top would turn the picture twice.
    if media_type is MediaType.AVIF or image.get_typeof("orientation") == 0:
        return 1
    value = int(image.get("orientation"))
    return value if value in _TURNS else 1


def _fit_master(image: pyvips.Image) -> pyvips.Image:
    if max(image.width, image.height) <= MASTER_EDGE:
        return image
    return _resize(image, *_size_inside(image, MASTER_EDGE))


def _size_inside(image: pyvips.Image, edge: int) -> tuple[int, int]:
    scale = min(1.0, edge / max(image.width, image.height))
    return max(1, int(image.width * scale + 0.5)), max(1, int(image.height * scale + 0.5))


def _resize(image: pyvips.Image, width: int, height: int) -> pyvips.Image:
    """Resize to exactly width × height; colour under transparent pixels does not bleed into the rest."""
    hscale, vscale = width / image.width, height / image.height
    if not image.hasalpha():
        return image.resize(hscale, vscale=vscale)
    return image.premultiply().resize(hscale, vscale=vscale).unpremultiply().cast(image.format)


def _to_srgb(image: pyvips.Image) -> pyvips.Image:
    """Eight bits per channel, sRGB, three bands or four, whatever came in."""
    alpha = None
    if image.hasalpha():
        alpha = image[image.bands - 1]
        if alpha.format == "ushort":
            alpha = (alpha >> 8).cast("uchar")
        image = image[: image.bands - 1]
    image = _colour_to_srgb(image)
    if image.bands == 1:
        image = image.bandjoin([image, image])
    if alpha is not None:
        image = image.bandjoin(alpha)
    return image.copy(interpretation="srgb")


def _colour_to_srgb(image: pyvips.Image) -> pyvips.Image:
    if image.get_typeof("icc-profile-data") != 0:
        try:
            if not _says_srgb(image):
                return _through_profile(image)
        except _COMPLAINTS as error:
            # A profile nobody can read is treated as absent, as browsers do.
            _words(error)
        image = image.copy()
        image.remove("icc-profile-data")
    if image.interpretation == "cmyk":
        return image.icc_transform("srgb", input_profile="cmyk", intent="relative", depth=8)
    return image.colourspace("srgb").cast("uchar")


def _through_profile(image: pyvips.Image) -> pyvips.Image:
    # Without depth=8 a 16-bit picture stays 16 bits wide.
    return image.icc_transform("srgb", embedded=True, intent="relative", depth=8)


def _says_srgb(image: pyvips.Image) -> bool:
    """Whether the embedded profile moves no colour of a sample by more than one step.

    Most profiles of cameras say sRGB at length; taking every pixel through them costs a tenth of the whole job.
    """
    if image.interpretation != "srgb" or image.format != "uchar" or image.bands != 3:
        return False
    sample = pyvips.Image.new_from_memory(_COLOUR_SAMPLE, len(_COLOUR_SAMPLE) // 3, 1, 3, "uchar")
    sample = sample.copy(interpretation="srgb")
    sample.set_type(pyvips.GValue.blob_type, "icc-profile-data", image.get("icc-profile-data"))
    moved = (_through_profile(sample).cast("short") - sample.cast("short")).abs().max()
    return bool(moved <= 1)


def _turn(image: pyvips.Image, orientation: int) -> pyvips.Image:
    rotation, flip = _TURNS.get(orientation, (None, None))
    if rotation is None and flip is None:
        return image
    if rotation is not None:
        image = image.rot(rotation)
    if flip is not None:
        image = image.flip(flip)
    return image.copy_memory()


def _renditions(master: pyvips.Image, renditions: tuple[Rendition, ...]) -> tuple[RenderedImage, ...]:
    """Every rendition from the master in memory, by way of the fitted ones where those have pixels enough."""
    fitted = [master]
    made: dict[str, RenderedImage] = {}
    for rendition in sorted(renditions, key=_source_first):
        edge = rendition.geometry.edge
        if rendition.geometry.fit is Fit.INSIDE:
            picture = fitted[-1]
            size = _size_inside(master, edge)  # rounded once: from a rounded size the ratio would drift
            if (picture.width, picture.height) != size:
                picture = _resize(picture, *size).copy_memory()
            fitted.append(picture)
        else:
            # The largest fitted one keeps what a square shows. Never a square from a square: it lies half a pixel off.
            largest = fitted[min(1, len(fitted) - 1)]
            source = largest if min(largest.width, largest.height) >= edge else master
            picture = _cover(source, edge).copy_memory()
        made[rendition.code] = _encode(rendition.code, picture, rendition.quality, RENDITION_EFFORT)
    return tuple(made[rendition.code] for rendition in renditions)


def _source_first(rendition: Rendition) -> tuple[bool, int]:
    return rendition.geometry.fit is Fit.COVER, -rendition.geometry.edge


def _cover(picture: pyvips.Image, edge: int) -> pyvips.Image:
    """A square of exactly `edge` pixels around what draws attention; a source with a smaller side is enlarged."""
    short = min(picture.width, picture.height)
    if short > edge:
        scale = edge / short
        picture = _resize(picture, max(edge, round(picture.width * scale)), max(edge, round(picture.height * scale)))
        # The crop below reads the picture twice: once to look, once to cut.
        picture = picture.copy_memory()
        short = edge
    if picture.width != picture.height:
        # Cutting before enlarging keeps a 12,000 pixel strip from becoming 64,000 pixels long.
        picture = picture.smartcrop(short, short, interesting="attention")
    return picture if short == edge else _resize(picture, edge, edge)


def _encode(code: str, picture: pyvips.Image, quality: int, effort: int) -> RenderedImage:
    data = cast("bytes", picture.webpsave_buffer(Q=quality, effort=effort, keep="none"))
    return RenderedImage(code, data, picture.width, picture.height)
