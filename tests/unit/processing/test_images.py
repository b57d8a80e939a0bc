"""The pipeline itself, in this process: what is decided before and around the one decode."""

import pytest
import pyvips

from libs.assets.rendition_profile import PROFILE_1
from services.processing import images as pipeline
from services.processing.domain import FailureCode, ImageRefused
from tests.support import images


@pytest.mark.case("A3b-1.04")
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_decodes_the_input_once(image_format: str) -> None:
    opened: list[str] = []
    evaluations: list[int] = []

    def load(loader: str, data: bytes) -> pyvips.Image:
        opened.append(loader)
        image = pipeline.load_with_libvips(loader, data)
        image.set_progress(True)
        image.signal_connect("posteval", lambda image, _: evaluations.append(image.height))
        return image

    data = images.encode(images.quadrants(900, 700), image_format)
    load(f"{image_format.lower().replace('avif', 'heif')}load_buffer", data).copy_memory()
    one_decode = tuple(evaluations)
    evaluations.clear()
    opened.clear()
    photo = pipeline.render(data, PROFILE_1, load)

    assert len(photo.images) == 5
    assert len(opened) == 1
    assert tuple(evaluations) == one_decode


@pytest.mark.case("A3b-1.05")
def test_refuses_an_avif_over_12_megapixels_accepts_one_at_12_and_a_20_megapixel_jpeg_and_png() -> None:
    with pytest.raises(ImageRefused) as refused:
        pipeline.render(images.encode(images.quadrants(4001, 3000), "AVIF", speed=10), PROFILE_1)
    assert refused.value.code is FailureCode.IMAGE_TOO_LARGE

    exactly = pipeline.render(images.encode(images.quadrants(4000, 3000), "AVIF", speed=10), PROFILE_1)
    assert (exactly.width, exactly.height) == (4000, 3000)
    for image_format, options in (("JPEG", {}), ("PNG", {"compress_level": 1})):
        photo = pipeline.render(images.encode(images.quadrants(5000, 4000), image_format, **options), PROFILE_1)
        assert (photo.width, photo.height) == (5000, 4000)
        assert (photo.images[0].width, photo.images[0].height) == (4096, 3277)


@pytest.mark.case("A3b-1.06")
def test_caps_the_decode_at_the_pixel_limit_of_the_format_found_whatever_was_declared() -> None:
    # The pipeline is never told what was declared: the limit and the loader both come from the bytes.
    opened: list[str] = []

    def load(loader: str, data: bytes) -> pyvips.Image:
        opened.append(loader)
        image = pipeline.load_with_libvips(loader, data)
        image.set_progress(True)
        image.signal_connect("preeval", lambda *_: pytest.fail("a pixel was decoded"))
        return image

    for data, loader in (
        (images.encode(images.quadrants(4001, 3000), "AVIF", speed=10), "heifload_buffer"),
        (images.jpeg(6325, 6325), "jpegload_buffer"),
        (images.encode(images.quadrants(12_001, 64), "PNG"), "pngload_buffer"),
        (images.encode(images.quadrants(12_001, 64), "WEBP"), "webpload_buffer"),
    ):
        opened.clear()
        with pytest.raises(ImageRefused) as refused:
            pipeline.render(data, PROFILE_1, load)
        assert refused.value.code is FailureCode.IMAGE_TOO_LARGE
        assert opened == [loader]


@pytest.mark.parametrize(("width", "height"), [(63, 400), (400, 63), (1, 1)])
def test_refuses_a_side_under_64_pixels_without_decoding(width: int, height: int) -> None:
    with pytest.raises(ImageRefused) as refused:
        pipeline.render(images.jpeg(width, height), PROFILE_1)
    assert refused.value.code is FailureCode.IMAGE_TOO_SMALL


def test_calls_exhausted_memory_an_error_of_ours_and_not_a_corrupt_photo() -> None:
    def load(loader: str, data: bytes) -> pyvips.Image:
        raise pyvips.Error("unable to load", "vips_tracked: out of memory -- size == 480MB")

    with pytest.raises(MemoryError):
        pipeline.render(images.jpeg(80, 80), PROFILE_1, load)


def test_calls_an_avif_that_announces_what_it_cannot_hold_corrupt_and_not_an_error_of_ours() -> None:
    # libheif reports its own limits as errors of memory; retrying such a file for minutes would change nothing.
    avif = images.encode(images.quadrants(400, 300), "AVIF")
    size = avif.index(b"ispe") + 8
    locations = avif.index(b"iloc") + 8
    for hostile in (
        avif[:size] + (64).to_bytes(4, "big") * 2 + avif[size + 8 :],
        avif[:locations] + b"\xff" * 24 + avif[locations + 24 :],
    ):
        with pytest.raises(ImageRefused) as refused:
            pipeline.render(hostile, PROFILE_1)
        assert refused.value.code is FailureCode.IMAGE_CORRUPT


def test_calls_a_file_corrupt_whose_own_bytes_stand_in_the_decoders_words() -> None:
    turned = images.encode(images.quadrants(400, 300), "AVIF", exif=images.exif(orientation=6))
    named_in_the_error = turned.replace(b"irot", b"\xd7rot")
    assert named_in_the_error != turned
    for _ in range(2):
        with pytest.raises(ImageRefused) as refused:
            pipeline.render(named_in_the_error, PROFILE_1)
        assert refused.value.code is FailureCode.IMAGE_CORRUPT
    with pytest.raises(pyvips.Error) as clean:
        pyvips.Image.jpegload_buffer(b"\xff\xd8\xff")
    assert "heif" not in str(clean.value)


def test_takes_an_avif_whose_major_brand_is_the_general_one_of_heif() -> None:
    avif = images.encode(images.quadrants(400, 300), "AVIF")
    photo = pipeline.render(avif.replace(b"ftypavif", b"ftypmif1", 1), PROFILE_1)
    assert (photo.width, photo.height) == (400, 300)

    other_codec = avif.replace(b"ftypavif", b"ftypmif1", 1).replace(b"av01", b"hvc1")
    with pytest.raises(ImageRefused) as refused:
        pipeline.render(other_codec, PROFILE_1)
    assert refused.value.code is FailureCode.IMAGE_CORRUPT  # its header lacks what that codec needs
