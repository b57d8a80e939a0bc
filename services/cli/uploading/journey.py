"""Takes files from intent to ready, several at once, waiting out what only needs waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from services.cli.uploading.files import SendableFile, UnsendableFile
from services.cli.uploading.gateway import GatewayRefused, Intent, StorageRefused, Unreachable, Upload

# The organization may have 20 uploads open; others of its staff want some of them.
CONCURRENT_UPLOADS = 8
_UNREACHABLE_ATTEMPTS = 5
_PATIENCE_SECONDS = 600.0

T = TypeVar("T")


class Step(StrEnum):
    """Where a file is on its way, in the words shown to people."""

    WAITING = "waiting"
    REQUESTED = "requesting"
    SENDING = "sending"
    PROCESSING = "verifying and rendering"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class Result:
    """What became of one file. `urls` by rendition name when ready; `explanation` in words when not."""

    path: Path
    asset_id: str | None
    urls: Mapping[str, str]
    explanation: str | None

    @property
    def succeeded(self) -> bool:
        """Whether the photo is ready."""
        return self.explanation is None


class Uploads(Protocol):
    """What the journey needs of the gateway and of object storage."""

    async def request_upload(self, file: SendableFile, idempotency_key: UUID) -> Intent:
        """Asks for a form."""

    async def post_file(self, upload: Upload, file: SendableFile, progress: Callable[[int], None]) -> None:
        """Posts the bytes."""

    async def complete(self, upload_id: str) -> Mapping[str, Any]:
        """Says that the bytes were posted."""

    async def asset(self, asset_id: str) -> Mapping[str, Any]:
        """Reads the asset."""


class Observer(Protocol):
    """Hears about progress."""

    def step(self, path: Path, step: Step, note: str = "") -> None:
        """`path` has come to `step`."""

    def sent(self, path: Path, sent_bytes: int) -> None:
        """`sent_bytes` of `path` have left."""


class UploadJourney:
    """Sends files. `pause` waits the given seconds."""

    def __init__(
        self,
        uploads: Uploads,
        observer: Observer,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        concurrency: int = CONCURRENT_UPLOADS,
    ) -> None:
        self._uploads = uploads
        self._observer = observer
        self._pause = pause
        self._slots = asyncio.Semaphore(concurrency)

    async def send_all(self, files: Sequence[SendableFile | UnsendableFile]) -> list[Result]:
        """Sends every file that can be sent; results come in the order of `files`. One failure stops no other."""
        return list(await asyncio.gather(*(self.send(file) for file in files)))

    async def send(self, file: SendableFile | UnsendableFile) -> Result:
        """Sends one file and waits until it is ready or has failed."""
        if isinstance(file, UnsendableFile):
            self._observer.step(file.path, Step.FAILED)
            return Result(file.path, None, {}, file.explanation)
        async with self._slots:
            try:
                result = await self._send(file)
            except (GatewayRefused, StorageRefused, Unreachable) as error:
                result = Result(file.path, None, {}, str(error))
        self._observer.step(file.path, Step.READY if result.succeeded else Step.FAILED)
        return result

    async def _send(self, file: SendableFile) -> Result:
        # One key per file for all attempts: an answer that got lost on its way never makes a second asset.
        key = uuid4()
        self._observer.step(file.path, Step.REQUESTED)
        intent = await self._patiently(file.path, lambda: self._uploads.request_upload(file, key))
        if intent.upload is not None:
            upload = intent.upload
            self._observer.step(file.path, Step.SENDING)

            def sent(count: int) -> None:
                self._observer.sent(file.path, min(count, file.size))

            await self._patiently(file.path, lambda: self._uploads.post_file(upload, file, sent))
            self._observer.step(file.path, Step.PROCESSING)
            await self._patiently(file.path, lambda: self._uploads.complete(upload.id))
        return await self._settled(file.path, str(intent.asset["id"]))

    async def _settled(self, path: Path, asset_id: str) -> Result:
        waited, delay = 0.0, 0.1
        while True:
            asset = await self._patiently(path, lambda: self._uploads.asset(asset_id))
            if asset["status"] == "ready":
                renditions = asset.get("renditions") or {}
                urls = {name: str(rendition["url"]) for name, rendition in renditions.items() if rendition}
                return Result(path, asset_id, urls, None)
            if asset["status"] == "failed":
                return Result(path, asset_id, {}, _failure(asset))
            if waited >= _PATIENCE_SECONDS:
                return Result(
                    path, asset_id, {}, f"It is still {asset['status']} after ten minutes. Ask for {asset_id} later."
                )
            await self._pause(delay)
            waited, delay = waited + delay, min(delay * 1.5, 0.75)

    async def _patiently(self, path: Path, attempt: Callable[[], Awaitable[T]]) -> T:
        """Waits out a rate limit, the cap of open uploads and a server that is away; raises every other refusal."""
        unreachable, waited = 0, 0.0
        while True:
            try:
                return await attempt()
            except Unreachable:
                unreachable += 1
                if unreachable == _UNREACHABLE_ATTEMPTS:
                    raise
                delay, note = min(0.5 * 2**unreachable, 8.0), "waiting for an answer"
            except GatewayRefused as refusal:
                wait = _worth_waiting(refusal)
                if wait is None or waited >= _PATIENCE_SECONDS:
                    raise
                delay, note = wait
            self._observer.step(path, Step.WAITING, note)
            await self._pause(delay)
            waited += delay


def _worth_waiting(refusal: GatewayRefused) -> tuple[float, str] | None:
    if refusal.status == 429:
        delay = refusal.retry_after or 2.0
        return delay, f"rate limit, {delay:.0f} s"
    if refusal.code == "assets.too_many_open_uploads":
        return refusal.retry_after or 2.0, "too many open uploads"
    if (
        refusal.code == "idempotency.in_progress"
        or refusal.status in {502, 504}
        or refusal.code.endswith("unavailable")
    ):
        # An upload without storage is refused for good; an API that restarts is not.
        if refusal.code in {"assets.storage_unavailable", "assets.access_class_unavailable"}:
            return None
        return refusal.retry_after or 1.0, "waiting for the service"
    return None


def _failure(asset: Mapping[str, Any]) -> str:
    failure = asset.get("failure") or {}
    words = f"{failure.get('message', '')} {failure.get('remedy', '')}".strip()
    return words or f"It was refused: {asset.get('failureCode') or 'no reason given'}."
