"""What the decoding child may and may not do, and what becomes of it when it does."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from libs.assets.rendition_profile import PROFILE_1
from services.processing.child import Decoder, DecoderLimits
from services.processing.domain import DecoderFailed, ImageRefused
from tests.support import images

PREAMBLE = """
import json, os, struct, sys, time
def answer(kind, head=b"{}"):
    sys.stdout.buffer.write(struct.pack(">BI", kind, len(head)) + head); sys.stdout.buffer.flush()
def request():
    profile, length = struct.unpack(">HI", sys.stdin.buffer.read(6)); return sys.stdin.buffer.read(length)
answer(1)
request()
"""


@pytest_asyncio.fixture
async def decoder() -> AsyncIterator[Decoder]:
    child = Decoder(DecoderLimits())
    await child.start()
    yield child
    await child.close()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def _gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while _alive(pid):
            await asyncio.sleep(0.01)


async def test_gives_the_child_no_environment_few_files_bounded_memory_and_no_core_dump(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Path(f"/proc/{decoder.pid}")
    assert (process / "environ").read_bytes() == b""
    limits = {line[:26].strip(): line[26:].split()[0] for line in (process / "limits").read_text().splitlines()[1:]}
    assert limits["Max address space"] == str(DecoderLimits().memory_bytes)
    assert limits["Max core file size"] == "0"
    assert limits["Max file size"] == "0"
    assert int(limits["Max open files"]) <= 64
    assert "NoNewPrivs:\t1" in (process / "status").read_text()
    assert os.getsid(decoder.pid or 0) != os.getsid(0)


async def test_blocks_every_loader_but_the_four_and_every_saver_but_webp() -> None:
    code = """
import pyvips
from services.processing import images
images.contain()
black, allowed = pyvips.Image.black(80, 80), []
for suffix in (".png", ".jpg", ".tif", ".avif", ".gif", ".v"):
    try:
        black.write_to_buffer(suffix)
    except pyvips.Error:
        continue
    allowed.append(suffix)
svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90"/>'
for name in ("svgload_buffer", "gifload_buffer", "tiffload_buffer", "uhdrload_buffer", "new_from_buffer"):
    try:
        getattr(pyvips.Image, name)(*((svg, "") if name == "new_from_buffer" else (svg,)))
    except pyvips.Error as error:
        if "blocked" in str(error) or "not in a known format" in str(error):
            continue
        allowed.append((name, str(error)))
    else:
        allowed.append(name)
assert not allowed, allowed
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE)
    _, problems = await process.communicate()
    assert process.returncode == 0, problems.decode()


async def test_replaces_a_child_that_is_killed_and_reports_the_photo_it_had(decoder: Decoder) -> None:
    first = decoder.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    rendering = asyncio.create_task(decoder.render(images.jpeg(2000, 1500), PROFILE_1))
    await asyncio.sleep(0.05)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(DecoderFailed, match="died"):
        await rendering
    photo = await decoder.render(images.jpeg(200, 150), PROFILE_1)
    assert photo.width == 200
    assert decoder.pid not in (None, first)


async def test_kills_a_child_that_hangs_and_gives_the_next_photo_a_new_one() -> None:
    decoder = Decoder(DecoderLimits(render_seconds=0.3))
    await decoder.start()
    first = decoder.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(DecoderFailed, match="timeout"):
        await decoder.render(images.jpeg(100, 100), PROFILE_1)
    await _gone(first)
    decoder = Decoder(DecoderLimits())
    assert (await decoder.render(images.jpeg(100, 100), PROFILE_1)).width == 100
    await decoder.close()


async def test_kills_a_child_whose_photo_nobody_waits_for_any_more(decoder: Decoder) -> None:
    first = decoder.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    rendering = asyncio.create_task(decoder.render(images.jpeg(100, 100), PROFILE_1))
    await asyncio.sleep(0.05)
    rendering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rendering
    await _gone(first)
    assert (await decoder.render(images.jpeg(100, 100), PROFILE_1)).width == 100


async def test_reports_a_photo_that_does_not_fit_into_memory_as_our_error() -> None:
    decoder = Decoder(DecoderLimits(memory_bytes=230 * 1024 * 1024))
    await decoder.start()
    interlaced = images.encode(images.quadrants(6000, 6000), "JPEG", progressive=True)
    with pytest.raises(DecoderFailed, match=r"out of memory|died|failed with"):
        await decoder.render(interlaced, PROFILE_1)
    assert (await decoder.render(images.jpeg(100, 100), PROFILE_1)).width == 100
    await decoder.close()


async def test_renders_the_largest_photos_within_the_memory_it_gives_its_child(decoder: Decoder) -> None:
    pixel = bytes(range(8))
    deep = images.png(8000, 5000, 16, 6, [pixel * 8000] * 5000)
    assert len(deep) < 10_485_760
    assert (await decoder.render(deep, PROFILE_1)).width == 8000
    progressive = images.encode(images.quadrants(8000, 5000), "JPEG", progressive=True, subsampling=0)
    assert (await decoder.render(progressive, PROFILE_1)).width == 8000


async def test_dies_with_a_parent_that_is_killed() -> None:
    code = (
        "import asyncio\n"
        "from services.processing.child import Decoder, DecoderLimits\n"
        "async def main():\n"
        "    decoder = Decoder(DecoderLimits()); await decoder.start(); print(decoder.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert _alive(child)
    parent.kill()
    await parent.wait()
    await _gone(child)


_FIVE = [
    ("original", 96, 80),
    ("p1-thumbnail", 160, 160),
    ("p1-tile", 320, 320),
    ("p1-card", 96, 80),
    ("p1-detail", 96, 80),
]


def _entries(**changed: object) -> str:
    entries = [{"code": code, "width": width, "height": height, "bytes": 100} for code, width, height in _FIVE]
    entries[1].update(changed)
    return f"json.dumps(dict(width=96, height=80, images={entries!r})).encode()"


@pytest.mark.parametrize(
    "behaviour",
    [
        "os._exit(0)",
        "answer(9)",
        "answer(1)",
        "answer(2, b'not json')",
        "answer(2, b'[]')",
        "answer(2, b'{}')",
        "answer(2, json.dumps(dict(width=96, height=80, images=[])).encode())",
        "answer(2, json.dumps(dict(width=13000, height=80, images=[])).encode())",
        "answer(3, json.dumps(dict(code='assets.storage_unavailable')).encode())",
        "answer(3)",
        "answer(4)",
        "answer(5, json.dumps(dict(error='ValueError')).encode())",
        "sys.stdout.buffer.write(struct.pack('>BI', 2, 4_000_000_000)); sys.stdout.buffer.flush()",
        f"answer(2, {_entries()}); sys.stdout.buffer.write(b'x' * 500); sys.stdout.buffer.flush()",
        f"answer(2, {_entries(bytes=2_000_000_000)})",
        f"answer(2, {_entries(bytes=-1)})",
        f"answer(2, {_entries(width=161)})",
        f"answer(2, {_entries(code='p1-poster')})",
    ],
)
async def test_believes_no_answer_that_is_not_what_was_asked_for(behaviour: str) -> None:
    code = PREAMBLE + behaviour + "\ntime.sleep(600)\n"
    decoder = Decoder(DecoderLimits(), command=("-c", code))
    await decoder.start()
    first = decoder.pid
    assert first is not None
    with pytest.raises(DecoderFailed):
        await decoder.render(images.jpeg(96, 80), PROFILE_1)
    await _gone(first)
    await decoder.close()


@pytest.mark.parametrize("metadata", [{"exif": images.exif()}, {"icc_profile": images.icc_profile()}, {"xmp": b"<x/>"}])
async def test_believes_no_image_that_still_carries_metadata(metadata: dict[str, bytes]) -> None:
    pictures = [images.encode(images.quadrants(w, h), "WEBP", **metadata) for _, w, h in _FIVE]
    entries = [
        {"code": code, "width": w, "height": h, "bytes": len(data)}
        for (code, w, h), data in zip(_FIVE, pictures, strict=True)
    ]
    code = PREAMBLE + (
        f"answer(2, json.dumps(dict(width=96, height=80, images={entries!r})).encode())\n"
        f"sys.stdout.buffer.write({b''.join(pictures)!r}); sys.stdout.buffer.flush()\n"
    )
    decoder = Decoder(DecoderLimits(), command=("-c", code))
    with pytest.raises(DecoderFailed, match="nonsense"):
        await decoder.render(images.jpeg(96, 80), PROFILE_1)
    await decoder.close()


async def test_says_so_when_a_child_does_not_start() -> None:
    decoder = Decoder(DecoderLimits(), command=("-c", "raise SystemExit(3)"))
    with pytest.raises(DecoderFailed, match="did not start"):
        await decoder.start()
    assert decoder.pid is None


async def test_keeps_its_child_when_a_photo_is_refused(decoder: Decoder) -> None:
    first = decoder.pid
    with pytest.raises(ImageRefused):
        await decoder.render(images.jpeg(100, 100)[:-300], PROFILE_1)
    assert decoder.pid == first
