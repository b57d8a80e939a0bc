"""The real pipeline in the real child: verdicts, pixels, privacy."""

from pathlib import Path

import pytest
from PIL import Image, ImageCms, ImageOps

from libs.assets.rendition_profile import PROFILE_1
from services.processing.child import Decoder
from services.processing.domain import FailureCode, ImageRefused, PermanentFailure, RenderedPhoto
from services.processing.verification import verify_and_render
from services.processing.webp import PIXEL_CHUNKS, read_webp
from tests.support import images

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _render(decoder: Decoder, data: bytes, declared: str) -> RenderedPhoto:
    return await verify_and_render(data, declared, len(data), PROFILE_1, decoder)


async def _refusal(decoder: Decoder, data: bytes, declared: str) -> FailureCode:
    with pytest.raises(ImageRefused) as refused:
        await _render(decoder, data, declared)
    return refused.value.code


def _assert_nothing_but_pixels(photo: RenderedPhoto) -> None:
    for image in photo.images:
        assert PIXEL_CHUNKS.issuperset(read_webp(image.data).chunks)
        assert images.CANARY.encode() not in image.data
        opened = images.opened(image.data)
        assert not opened.getexif()
        assert not {"exif", "xmp", "icc_profile", "comment", "photoshop"} & opened.info.keys()


@pytest.mark.case("A3b-1.02")
async def test_turns_a_rotated_jpeg_with_gps_exif_into_an_upright_srgb_webp_master_with_no_metadata(
    decoder: Decoder,
) -> None:
    data = images.jpeg(600, 400, exif=images.exif(orientation=6, gps=True), comment=images.CANARY.encode())
    photo = await _render(decoder, data, "image/jpeg")

    master = photo.images[0]
    assert (photo.width, photo.height) == (master.width, master.height) == (400, 600)
    opened = images.opened(master.data)
    assert (opened.format, opened.mode, opened.size) == ("WEBP", "RGB", (400, 600))
    upright = [images.BLUE, images.RED, images.YELLOW, images.GREEN]
    assert images.furthest_channel(images.quadrant_colours(master.data), upright) <= 6
    _assert_nothing_but_pixels(photo)


@pytest.mark.case("A3b-1.03")
async def test_refuses_a_png_declared_as_jpeg_a_polyglot_a_truncated_file_and_an_image_over_40_megapixels(
    decoder: Decoder,
) -> None:
    png = images.encode(images.quadrants(100, 100), "PNG")
    assert await _refusal(decoder, png, "image/jpeg") is FailureCode.CONTENT_MISMATCH
    polyglot = b"GIF89a/*" + images.jpeg(100, 100)
    assert await _refusal(decoder, polyglot, "image/jpeg") is FailureCode.CONTENT_MISMATCH
    assert await _refusal(decoder, images.jpeg(100, 100)[:-600], "image/jpeg") is FailureCode.IMAGE_CORRUPT
    huge = images.encode(Image.new("1", (6325, 6325)), "PNG")
    assert await _refusal(decoder, huge, "image/png") is FailureCode.IMAGE_TOO_LARGE


async def test_refuses_a_stored_size_that_differs_from_the_declared_one(decoder: Decoder) -> None:
    data = images.jpeg(100, 100)
    with pytest.raises(PermanentFailure) as refused:
        await verify_and_render(data, "image/jpeg", len(data) + 1, PROFILE_1, decoder)
    assert refused.value.code is FailureCode.SIZE_MISMATCH


@pytest.mark.case("A3b-2.01")
@pytest.mark.parametrize(
    ("source", "master", "card", "detail"),
    [
        ((3000, 2000), (3000, 2000), (640, 427), (1280, 853)),
        ((2000, 3000), (2000, 3000), (427, 640), (853, 1280)),
        ((5000, 2500), (4096, 2048), (640, 320), (1280, 640)),
        ((1280, 1280), (1280, 1280), (640, 640), (1280, 1280)),
        ((300, 200), (300, 200), (300, 200), (300, 200)),
        ((64, 64), (64, 64), (64, 64), (64, 64)),
    ],
)
async def test_derives_four_renditions_of_the_profile_from_the_master_with_the_declared_geometry(
    decoder: Decoder,
    source: tuple[int, int],
    master: tuple[int, int],
    card: tuple[int, int],
    detail: tuple[int, int],
) -> None:
    photo = await _render(decoder, images.jpeg(*source), "image/jpeg")
    sizes = {image.code: images.opened(image.data).size for image in photo.images}
    assert sizes == {
        "original": master,
        "p1-thumbnail": (160, 160),
        "p1-tile": (320, 320),
        "p1-card": card,
        "p1-detail": detail,
    }
    assert photo.images[0].code == "original"


async def test_crops_the_squares_around_what_draws_attention(decoder: Decoder) -> None:
    picture = Image.new("RGB", (1600, 400), (205, 205, 205))
    picture.paste((230, 30, 30), (1250, 120, 1400, 280))
    photo = await _render(decoder, images.encode(picture, "PNG"), "image/png")
    for image in photo.images[1:3]:
        colours = images.opened(image.data).convert("RGB").getcolors(1 << 20) or []
        reddish = sum(count for count, colour in colours if isinstance(colour, tuple) and colour[0] - colour[1] > 100)
        assert reddish > image.width * image.height // 12


@pytest.mark.parametrize("orientation", range(9))
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
async def test_applies_an_exif_orientation_to_master_size_and_every_rendition_alike(
    decoder: Decoder, image_format: str, orientation: int
) -> None:
    picture = images.quadrants(480, 360)
    data = images.encode(picture, image_format, exif=images.exif(orientation))
    upright = picture.copy()
    if orientation >= 2:
        tagged = images.opened(data)
        upright = ImageOps.exif_transpose(tagged)
    photo = await _render(decoder, data, f"image/{image_format.lower()}")
    assert (photo.width, photo.height) == upright.size
    wanted = images.quadrant_colours(images.encode(upright, "PNG"))
    for image in photo.images:
        # The squares cut a side off, the corners stay.
        assert images.furthest_channel(images.corner_colours(image.data), wanted) <= 12, image.code
        square = image.code in ("p1-thumbnail", "p1-tile")
        assert square or (image.width > image.height) == (upright.width > upright.height)


@pytest.mark.parametrize("orientation", range(2, 9))
async def test_turns_an_avif_by_irot_and_imir_once_and_never_by_exif_on_top(decoder: Decoder, orientation: int) -> None:
    # Pillow writes the orientation as irot and imir; an EXIF block with the same orientation stays in the file beside.
    picture = images.quadrants(480, 360)
    data = images.encode(picture, "AVIF", exif=images.exif(orientation), quality=90)
    assert b"irot" in data or b"imir" in data
    tagged = picture.copy()
    tagged.getexif()[0x0112] = orientation
    upright = ImageOps.exif_transpose(tagged)
    photo = await _render(decoder, data, "image/avif")
    assert (photo.width, photo.height) == upright.size
    wanted = images.quadrant_colours(images.encode(upright, "PNG"))
    assert images.furthest_channel(images.quadrant_colours(photo.images[0].data), wanted) <= 8
    _assert_nothing_but_pixels(photo)


SWAPPED = (images.P3_COLUMNS[1], images.P3_COLUMNS[0], images.P3_COLUMNS[2])
WIDE = ((0.7977, 0.2880, 0.0), (0.1352, 0.7119, 0.0), (0.0313, 0.0001, 0.8249))


@pytest.mark.parametrize("columns", [images.P3_COLUMNS, SWAPPED, WIDE], ids=["p3", "red and green swapped", "prophoto"])
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "AVIF"])
async def test_keeps_colours_when_the_profile_is_dropped(
    decoder: Decoder, image_format: str, columns: tuple[tuple[float, ...], ...]
) -> None:
    profile = images.icc_profile(columns, gamma=1.8)
    picture = Image.new("RGB", (128, 128), (150, 120, 90))
    picture.paste((110, 130, 150), (0, 0, 64, 128))
    data = images.encode(picture, image_format, icc_profile=profile, quality=95)
    judged = ImageCms.profileToProfile(
        picture, images.opened_profile(profile), ImageCms.createProfile("sRGB"), ImageCms.Intent.RELATIVE_COLORIMETRIC
    )
    assert judged is not None
    photo = await _render(decoder, data, f"image/{image_format.lower()}")
    wanted = images.quadrant_colours(images.encode(judged, "PNG"))
    assert images.furthest_channel(wanted, images.quadrant_colours(images.encode(picture, "PNG"))) > 10
    for image in photo.images:
        if image.code not in ("p1-thumbnail", "p1-tile"):
            assert images.furthest_channel(images.quadrant_colours(image.data), wanted) <= 5


@pytest.mark.parametrize("profile", [b"not a profile", images.icc_profile()[:150]], ids=["text", "cut short"])
async def test_treats_an_unreadable_profile_as_absent(decoder: Decoder, profile: bytes) -> None:
    photo = await _render(decoder, images.jpeg(200, 200, icc_profile=profile), "image/jpeg")
    assert images.furthest_channel(images.quadrant_colours(photo.images[0].data), images.QUADRANTS) <= 6


async def test_reads_cmyk_with_and_without_the_adobe_marker_alike(decoder: Decoder) -> None:
    # Every viewer takes the four channels as Adobe writes them, inverted, whether the marker says so or not.
    with_marker = images.encode(images.quadrants(200, 200, "CMYK"), "JPEG", quality=95)
    without_marker = images.without_jpeg_segment(with_marker, 0xEE)
    assert b"Adobe" in with_marker[:400]
    assert b"Adobe" not in without_marker[:400]
    for data in (with_marker, without_marker):
        photo = await _render(decoder, data, "image/jpeg")
        assert images.opened(photo.images[0].data).mode == "RGB"
        assert images.furthest_channel(images.quadrant_colours(photo.images[0].data), images.QUADRANTS) <= 70
        for colour, strongest in zip(images.quadrant_colours(photo.images[0].data), (0, 1, 2), strict=False):
            assert max(colour) == colour[strongest]


@pytest.mark.parametrize("with_profile", [False, True])
@pytest.mark.parametrize("alpha", [False, True])
async def test_brings_16_bits_through_the_profile_to_8(decoder: Decoder, with_profile: bool, alpha: bool) -> None:
    channels = (200, 100, 50, 128) if alpha else (200, 100, 50)
    pixel = b"".join((value << 8 | value).to_bytes(2, "big") for value in channels)
    profile = images.icc_profile(SWAPPED, gamma=2.2)
    chunks = [images.png_profile_chunk(profile)] if with_profile else []
    data = images.png(96, 96, 16, 6 if alpha else 2, [pixel * 96] * 96, chunks)
    photo = await _render(decoder, data, "image/png")
    opened = images.opened(photo.images[0].data)
    assert opened.mode == ("RGBA" if alpha else "RGB")
    found = opened.getpixel((48, 48))
    assert isinstance(found, tuple)
    assert (found[0] < found[1]) == with_profile
    assert max(found[:3]) > 150 and min(found[:3]) < 110
    assert not alpha or abs(found[3] - 128) <= 2


@pytest.mark.parametrize("mode", ["L", "LA", "1", "P", "RGBA"])
async def test_makes_srgb_of_every_png_mode_and_keeps_its_alpha(decoder: Decoder, mode: str) -> None:
    picture = images.quadrants(200, 120, mode)
    if "A" in mode:
        picture.putalpha(Image.linear_gradient("L").resize((200, 120)))
    data = images.encode(picture, "PNG")
    photo = await _render(decoder, data, "image/png")
    for image in photo.images:
        assert images.opened(image.data).mode == ("RGBA" if "A" in mode else "RGB")
    assert images.furthest_channel(images.quadrant_colours(photo.images[0].data), images.quadrant_colours(data)) <= 6


@pytest.mark.parametrize(("image_format", "cut"), [("PNG", 12), ("PNG", 4), ("JPEG", 2), ("WEBP", 1), ("AVIF", 40)])
async def test_refuses_a_damaged_tail(decoder: Decoder, image_format: str, cut: int) -> None:
    data = images.encode(images.quadrants(320, 240), image_format)
    assert await _refusal(decoder, data[:-cut], f"image/{image_format.lower()}") is FailureCode.IMAGE_CORRUPT


async def test_shows_the_base_picture_of_a_gain_map_jpeg(decoder: Decoder) -> None:
    xmp = (
        b"http://ns.adobe.com/xap/1.0/\x00<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF xmlns:rdf="
        b"'http://www.w3.org/1999/02/22-rdf-syntax-ns#'><rdf:Description xmlns:hdrgm="
        b"'http://ns.adobe.com/hdr-gain-map/1.0/' hdrgm:Version='1.0' hdrgm:GainMapMax='2'/></rdf:RDF></x:xmpmeta>"
    )
    gain_map = images.jpeg_with_segments(images.encode(Image.new("L", (80, 60), 255), "JPEG"), [(0xE1, xmp)])
    data = images.jpeg_with_segments(images.jpeg(320, 240), [(0xE1, xmp)]) + gain_map
    photo = await _render(decoder, data, "image/jpeg")
    assert (photo.width, photo.height) == (320, 240)
    assert images.furthest_channel(images.quadrant_colours(photo.images[0].data), images.QUADRANTS) <= 6
    assert all(b"hdrgm" not in image.data for image in photo.images)


@pytest.mark.parametrize("size", [(12_000, 64), (64, 12_000), (64, 64), (65, 4096)])
@pytest.mark.parametrize("transparent", [False, True])
async def test_fills_the_squares_from_strips_tiny_and_fully_transparent_sources(
    decoder: Decoder, size: tuple[int, int], transparent: bool
) -> None:
    picture = images.quadrants(*size, "RGBA")
    if transparent:
        picture.putalpha(0)
    photo = await _render(decoder, images.encode(picture, "PNG"), "image/png")
    by_code = {image.code: image for image in photo.images}
    assert (photo.width, photo.height) == size
    assert (by_code["p1-thumbnail"].width, by_code["p1-thumbnail"].height) == (160, 160)
    assert (by_code["p1-tile"].width, by_code["p1-tile"].height) == (320, 320)
    for image in photo.images:
        alpha = images.opened(image.data).convert("RGBA").getchannel("A")
        assert alpha.getextrema() == ((0, 0) if transparent else (255, 255))


@pytest.mark.parametrize("image_format", ["WEBP", "PNG"])
async def test_shows_the_first_frame_of_an_animation_and_not_a_tall_strip(decoder: Decoder, image_format: str) -> None:
    frames = [images.quadrants(120, 90), Image.new("RGB", (120, 90), (0, 0, 0)), Image.new("RGB", (120, 90), (9, 9, 9))]
    data = images.encode(frames[0], image_format, save_all=True, append_images=frames[1:], duration=50)
    photo = await _render(decoder, data, f"image/{image_format.lower()}")
    assert (photo.width, photo.height) == (120, 90)
    assert images.furthest_channel(images.quadrant_colours(photo.images[0].data), images.QUADRANTS) <= 12


async def test_leaves_gps_xmp_iptc_comments_and_thumbnails_behind(decoder: Decoder) -> None:
    canary = images.CANARY.encode()
    thumbnail = images.jpeg_with_segments(images.jpeg(64, 64), [(0xFE, canary)])
    jpeg = images.jpeg_with_segments(
        images.jpeg(320, 240, exif=images.exif(gps=True)),
        [
            (0xE1, b"http://ns.adobe.com/xap/1.0/\x00<x:xmpmeta xmlns:x='adobe:ns:meta/'>" + canary + b"</x:xmpmeta>"),
            (0xED, b"Photoshop 3.0\x008BIM\x04\x04\x00\x00\x00\x00\x00\x20" + canary.ljust(32, b" ")),
            (0xFE, canary),
            (0xE5, thumbnail),
        ],
    )
    text = images.png_chunk(b"tEXt", b"Comment\x00" + canary)
    xmp = images.png_chunk(b"iTXt", b"XML:com.adobe.xmp\x00\x00\x00\x00\x00" + canary)
    block = images.png_chunk(b"eXIf", images.exif(gps=True)[6:])
    png = images.png(96, 96, 8, 2, [b"\x60\x80\xa0" * 96] * 96, [text, xmp, block])
    webp = images.encode(images.quadrants(96, 96), "WEBP", exif=images.exif(gps=True), xmp=canary)
    avif = images.encode(images.quadrants(96, 96), "AVIF", exif=images.exif(gps=True), xmp=canary)
    for data, declared in ((jpeg, "image/jpeg"), (png, "image/png"), (webp, "image/webp"), (avif, "image/avif")):
        assert canary in data
        _assert_nothing_but_pixels(await _render(decoder, data, declared))
        _assert_nothing_but_pixels(await _render(decoder, data + canary + thumbnail, declared))


async def test_lets_one_bad_file_among_twenty_fail_alone(decoder: Decoder) -> None:
    before = decoder.pid
    good = images.jpeg(200, 150)
    for number in range(20):
        if number == 7:
            assert await _refusal(decoder, good[:-500], "image/jpeg") is FailureCode.IMAGE_CORRUPT
        else:
            photo = await _render(decoder, good, "image/jpeg")
            assert (photo.width, photo.height) == (200, 150)
    assert decoder.pid == before


async def test_does_not_grow_over_200_avif_decodes(decoder: Decoder) -> None:
    data = images.encode(images.quadrants(800, 600), "AVIF", speed=10)

    async def resident_kib() -> int:
        await _render(decoder, data, "image/avif")
        status = Path(f"/proc/{decoder.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    resident = [await resident_kib() for _ in range(200)]
    assert resident[-1] - resident[20] < 16 * 1024
