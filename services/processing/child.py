"""The worker's side of the decoding child: one process, one photo at a time, replaced when it fails (DESIGN D6)."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.assets.rendition_profile import RENDITIONS, Fit, Rendition
from services.processing.domain import (
    MASTER_EDGE,
    MAX_SIDE,
    MIN_SIDE,
    ORIGINAL_VARIANT,
    DecoderFailed,
    FailureCode,
    ImageRefused,
    RenderedImage,
    RenderedPhoto,
)
from services.processing.frames import (
    ANSWER_HEAD,
    MAX_ANSWER_HEAD_BYTES,
    REQUEST_HEAD,
    AnnouncedImage,
    AnswerKind,
    NotAnAnswer,
    announced_images,
    positive,
    unpack_head,
)
from services.processing.webp import PIXEL_CHUNKS, NotWebp, read_webp

_SOURCE_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_CONTAINER_BYTES: Final = 4_096
"""What a WebP may weigh beyond four bytes per pixel."""

_REFUSALS: Final = frozenset(
    {
        FailureCode.CONTENT_MISMATCH,
        FailureCode.IMAGE_TOO_LARGE,
        FailureCode.IMAGE_TOO_SMALL,
        FailureCode.IMAGE_CORRUPT,
    }
)


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """What one child may take: address space in bytes, seconds per photo, seconds to start.

    Address space is more than memory: the interpreter, libvips and their threads map some 180 MiB before a photo
    arrives. The largest photo within the pixel limits needs about 500 MiB beside it.
    """

    memory_bytes: int = 1_024 * 1024 * 1024
    render_seconds: float = 60.0
    start_seconds: float = 30.0


class Decoder:
    """Renders photos in a child process. Start it once, close it once; it may be used by one task at a time."""

    def __init__(
        self, limits: DecoderLimits, command: tuple[str, ...] = ("-s", "-E", "-m", "services.processing.child_process")
    ) -> None:
        """`command` is what the interpreter runs; the child gets its parent's pid and the memory limit after it."""
        self._limits = limits
        self._command = command
        self._process: Process | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the running child, or None when none runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def start(self) -> None:
        """Start the child, so that the first photo does not wait for it. Raises DecoderFailed when it does not come."""
        async with self._one_at_a_time:
            await self._running()

    async def close(self) -> None:
        """Kill the child, whatever it does, and wait until it is gone."""
        await self._discard()

    async def render(self, data: bytes, profile: int, seconds: float | None = None) -> RenderedPhoto:
        """Render one photo within the time limit, or within `seconds` when that is less.

        Raises ImageRefused with the child's verdict, and DecoderFailed when the child died, hung, ran out of memory or
        answered something that is not what was asked: then it is killed, and the next photo gets a new one.
        """
        limit = self._limits.render_seconds if seconds is None else min(seconds, self._limits.render_seconds)
        async with self._one_at_a_time:
            process = await self._running()
            kept = False
            try:
                async with asyncio.timeout(limit):
                    photo = await self._ask(process, data, profile)
            except ImageRefused:
                kept = True
                raise
            except TimeoutError as error:
                raise DecoderFailed("timeout") from error
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise DecoderFailed("died") from error
            except (NotAnAnswer, NotWebp) as error:
                raise DecoderFailed("answered nonsense") from error
            else:
                kept = True
                return photo
            finally:
                # A child that was cut off, by us or by itself, may still hold half an answer.
                if not kept:
                    await self._discard()

    async def _running(self) -> Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self._discard()
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command,
                str(os.getpid()),
                str(self._limits.memory_bytes),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env={},
                cwd=_SOURCE_ROOT,
                start_new_session=True,  # Ctrl-C at a terminal is for the worker, which lets the photo finish
            )
            async with asyncio.timeout(self._limits.start_seconds):
                kind, _ = await _read_head(process)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, NotAnAnswer) as error:
            await self._discard()
            raise DecoderFailed("did not start") from error
        if kind is not AnswerKind.STARTED:
            await self._discard()
            raise DecoderFailed("did not start")
        return process

    async def _discard(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.shield(process.wait())

    async def _ask(self, process: Process, data: bytes, profile: int) -> RenderedPhoto:
        assert process.stdin is not None
        process.stdin.write(REQUEST_HEAD.pack(profile, len(data)))
        process.stdin.write(data)
        await process.stdin.drain()
        kind, head = await _read_head(process)
        match kind:
            case AnswerKind.RENDERED:
                return await _read_photo(process, head, profile)
            case AnswerKind.REFUSED if head.get("code") in _REFUSALS:
                raise ImageRefused(FailureCode(str(head["code"])))
            case AnswerKind.OUT_OF_MEMORY:
                raise DecoderFailed("out of memory")
            case AnswerKind.FAILED:
                raise DecoderFailed(f"failed with {head.get('error')}")
            case _:
                raise NotAnAnswer("the answer is of a kind that was not asked for")


async def _read_head(process: Process) -> tuple[AnswerKind, dict[str, object]]:
    assert process.stdout is not None
    kind, length = ANSWER_HEAD.unpack(await process.stdout.readexactly(ANSWER_HEAD.size))
    if kind not in AnswerKind.__members__.values() or length > MAX_ANSWER_HEAD_BYTES:
        raise NotAnAnswer("the answer has no known kind")
    return AnswerKind(kind), unpack_head(await process.stdout.readexactly(length))


async def _read_photo(process: Process, head: dict[str, object], profile: int) -> RenderedPhoto:
    assert process.stdout is not None
    width, height = positive(head, "width"), positive(head, "height")
    if not (MIN_SIDE <= width <= MAX_SIDE and MIN_SIDE <= height <= MAX_SIDE):
        raise NotAnAnswer("the source has a size that is refused")
    announced = announced_images(head)
    renditions = RENDITIONS[profile]
    if [image.code for image in announced] != [ORIGINAL_VARIANT, *(rendition.code for rendition in renditions)]:
        raise NotAnAnswer("the images are not those of the profile")
    for image, rendition in zip(announced, (None, *renditions), strict=True):
        if not _fits(image, rendition) or image.byte_size > image.width * image.height * 4 + _CONTAINER_BYTES:
            raise NotAnAnswer("an image does not have its geometry")
    images: list[RenderedImage] = []
    for image in announced:
        data = await process.stdout.readexactly(image.byte_size)
        facts = read_webp(data)
        if (facts.width, facts.height) != (image.width, image.height) or not PIXEL_CHUNKS.issuperset(facts.chunks):
            raise NotAnAnswer("an image is not what was announced")
        images.append(RenderedImage(image.code, data, image.width, image.height))
    return RenderedPhoto(width, height, tuple(images))


def _fits(image: AnnouncedImage, rendition: Rendition | None) -> bool:
    if rendition is None:
        return max(image.width, image.height) <= MASTER_EDGE
    edge = rendition.geometry.edge
    if rendition.geometry.fit is Fit.COVER:
        return image.width == image.height == edge
    return max(image.width, image.height) <= edge
