"""Formats told from bytes alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.assets.media_types import MediaType
from services.processing.signatures import detect_media_type, is_coded_as_av1, is_complete
from tests.support import images


def _ftyp(major: bytes, *compatible: bytes) -> bytes:
    box = b"ftyp" + major + b"\x00\x00\x00\x00" + b"".join(compatible)
    return (len(box) + 4).to_bytes(4, "big") + box + b"\x00" * 16


@pytest.mark.case("A3b-1.01")
def test_recognizes_jpeg_png_webp_and_avif_by_their_magic_bytes_and_nothing_else() -> None:
    picture = images.quadrants(80, 80)
    assert detect_media_type(images.encode(picture, "JPEG")) is MediaType.JPEG
    assert detect_media_type(images.encode(picture, "PNG")) is MediaType.PNG
    assert detect_media_type(images.encode(picture, "WEBP")) is MediaType.WEBP
    assert detect_media_type(images.encode(picture, "AVIF")) is MediaType.AVIF
    assert detect_media_type(_ftyp(b"mif1", b"miaf", b"avif")) is MediaType.AVIF
    for other in (
        b"",
        b"\xff\xd8",
        b"\x89PNG\r\n\x1a",
        b"\x89PNG\n\x1a\n\x00",
        b"RIFF\x00\x00\x00\x00WAVEfmt ",
        images.encode(picture, "GIF"),
        images.encode(picture, "BMP"),
        images.encode(picture, "TIFF"),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7",
        b"\x00\x00\x00\x0cjP  \r\n\x87\n",
        _ftyp(b"heic", b"mif1", b"heic"),
        _ftyp(b"isom", b"iso2", b"mp41"),
        _ftyp(b"avis", b"avif", b"avis", b"msf1"),
        _ftyp(b"mif1", b"avis"),
        b"\x00\x00\x00\x08ftypavif",
        b"\x00\x00\x00\x14ftypisom\x00\x00\x00\x00mp41avif",
        b"GIF89a" + images.encode(picture, "JPEG"),
    ):
        assert detect_media_type(other) is None, other[:24]


def test_tells_av1_from_other_codecs_by_the_items_and_not_by_the_brands() -> None:
    avif = images.encode(images.quadrants(80, 80), "AVIF")
    assert is_coded_as_av1(avif)
    assert is_coded_as_av1(avif.replace(b"ftypavif", b"ftypmif1"))
    assert not is_coded_as_av1(avif.replace(b"av01", b"hvc1"))
    assert not is_coded_as_av1(avif[:60])
    assert not is_coded_as_av1(images.jpeg(80, 80))


@given(st.binary(max_size=200))
def test_walks_any_boxes_without_raising_or_hanging(tail: bytes) -> None:
    assert not is_coded_as_av1(b"\x00\x00\x00\x10ftypavif\x00\x00\x00\x00" + tail) or b"av01" in tail


@given(st.binary(max_size=64))
def test_takes_any_bytes_without_raising(data: bytes) -> None:
    media_type = detect_media_type(data)
    for each in MediaType:
        is_complete(data, each)
    assert media_type is None or data[:3] in (b"\xff\xd8\xff", b"\x89PN", b"RIF") or data[4:8] == b"ftyp"


@given(st.binary(max_size=400))
def test_walks_any_jpeg_and_png_without_hanging(tail: bytes) -> None:
    is_complete(b"\xff\xd8\xff" + tail, MediaType.JPEG)
    is_complete(b"\x89PNG\r\n\x1a\n" + tail, MediaType.PNG)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_misses_the_end_of_a_file_that_lacks_its_last_bytes_and_forgives_what_follows_it(image_format: str) -> None:
    data = images.encode(images.quadrants(96, 80), image_format)
    media_type = MediaType(f"image/{image_format.lower()}")
    assert is_complete(data, media_type)
    assert is_complete(data + b"PK\x03\x04 an archive, \xff\xd9 and more", media_type)
    assert not is_complete(data[:-1], media_type)
    assert not is_complete(data[:-12], media_type)


def test_does_not_take_the_end_of_an_embedded_thumbnail_for_the_end_of_the_photo() -> None:
    data = images.jpeg(96, 80)
    with_thumbnail = images.jpeg_with_segments(data, [(0xE1, b"Exif\x00\x00" + images.jpeg(64, 64))])
    assert is_complete(with_thumbnail, MediaType.JPEG)
    assert not is_complete(with_thumbnail[:-2], MediaType.JPEG)


def test_gives_up_on_a_jpeg_with_more_scans_than_any_encoder_writes() -> None:
    data = images.jpeg(96, 80, progressive=True)
    assert is_complete(data, MediaType.JPEG)
    last_scan = data[data.rindex(b"\xff\xda") : -2]
    assert not is_complete(data[:-2] + last_scan * 100 + b"\xff\xd9", MediaType.JPEG)
