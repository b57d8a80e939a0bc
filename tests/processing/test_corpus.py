"""Every file of an image corpus through the real pipeline, judged by what its manifest expects.

``NINAKU_IMAGE_CORPUS`` names a folder with ``manifest.jsonl`` and ``files/``. ``either`` accepts each listed
outcome, the size is compared before the fit to 4096, and the mean of each quadrant of the master on white may be 12
off per channel.
"""

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from libs.assets.rendition_profile import PROFILE_1
from services.processing.child import Decoder, DecoderLimits
from services.processing.domain import ImageRefused, RenderedPhoto
from services.processing.verification import verify_and_render
from services.processing.webp import PIXEL_CHUNKS, read_webp
from tests.support import images

_VARIABLE: Final = "NINAKU_IMAGE_CORPUS"
_TOLERANCE: Final = 12

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(slots=True)
class Tally:
    """How many files were judged right, of how many."""

    right: int = 0
    judged: int = 0


def _entries() -> list[Any]:
    folder = os.environ.get(_VARIABLE)
    if not folder:
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{_VARIABLE} names no corpus"), id="no corpus")]
    lines = Path(folder, "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines if line.strip()]
    return [pytest.param(entry, id=str(entry["id"])) for entry in entries]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tally(request: pytest.FixtureRequest) -> AsyncIterator[Tally]:
    count = Tally()
    yield count
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\nimage corpus: {count.right} of {count.judged} files right")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def corpus_decoder() -> AsyncIterator[Decoder]:
    child = Decoder(DecoderLimits())
    yield child
    await child.close()


@pytest.mark.parametrize("entry", _entries())
async def test_judges_every_file_of_the_corpus_as_its_manifest_does(
    entry: dict[str, Any], corpus_decoder: Decoder, tally: Tally
) -> None:
    data = Path(os.environ[_VARIABLE], "files", entry["file"]).read_bytes()
    tally.judged += 1
    verdict, photo = await _verdict(data, entry["declared_type"], corpus_decoder)
    if photo is None:
        assert entry["expect"] in ("refuse", "either"), f"refused as {verdict}: {entry['why']}"
        assert verdict in (entry["code"], *entry.get("also_ok_codes", ())), entry["why"]
    else:
        assert entry["expect"] in ("accept", "either"), f"accepted: {entry['why']}"
        _judge(photo, entry)
    tally.right += 1


async def _verdict(data: bytes, declared: str, decoder: Decoder) -> tuple[str, RenderedPhoto | None]:
    try:
        return "accepted", await verify_and_render(data, declared, len(data), PROFILE_1, decoder)
    except ImageRefused as refused:
        return refused.code, None


def _judge(photo: RenderedPhoto, entry: dict[str, Any]) -> None:
    if "width" in entry:
        assert (photo.width, photo.height) == (entry["width"], entry["height"]), entry["why"]
    if "upright_quadrants_srgb" in entry:
        found = images.quadrant_colours(photo.images[0].data)
        difference = images.furthest_channel(found, entry["upright_quadrants_srgb"])
        assert difference <= _TOLERANCE, f"{found}: {entry['why']}"
    for image in photo.images:
        assert PIXEL_CHUNKS.issuperset(read_webp(image.data).chunks)
        opened = images.opened(image.data)
        assert opened.size == (image.width, image.height)
        assert not opened.getexif()
        assert not {"exif", "xmp", "icc_profile", "comment", "photoshop"} & opened.info.keys()
        assert b"CANARY" not in image.data
