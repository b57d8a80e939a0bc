"""How files travel: several at once, waiting out what passes, each with its own fate."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from libs.assets.media_types import MediaType
from services.cli.uploading.files import SendableFile, UnsendableFile
from services.cli.uploading.gateway import GatewayRefused, Intent, StorageRefused, Unreachable, Upload
from services.cli.uploading.journey import CONCURRENT_UPLOADS, Result, Step, UploadJourney

READY = {
    "status": "ready",
    "renditions": {"thumbnail": {"url": "https://cdn/t"}, "tile": {"url": "https://cdn/i"}, "card": None},
}


def refusal(status: int, code: str, retry_after: float | None = None) -> GatewayRefused:
    return GatewayRefused(status, code, "Said no.", "Do something else.", retry_after)


class ScriptedUploads:
    """Answers as scripted by file name: exceptions are raised in turn before the answer."""

    def __init__(self, requests: Mapping[str, list[Exception]] | None = None) -> None:
        self.requests = {name: list(failures) for name, failures in (requests or {}).items()}
        self.posts: dict[str, list[Exception]] = {}
        self.assets: dict[str, list[Mapping[str, Any]]] = {}
        self.replays_without_form: set[str] = set()
        self.keys: list[tuple[str, UUID]] = []
        self.completed: list[str] = []
        self.open = self.most_open = 0

    async def request_upload(self, file: SendableFile, idempotency_key: UUID) -> Intent:
        self.keys.append((file.path.name, idempotency_key))
        if failures := self.requests.get(file.path.name):
            raise failures.pop(0)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0)
        form = None if file.path.name in self.replays_without_form else Upload(f"u-{file.path.name}", "https://s3", {})
        return Intent({"id": f"a-{file.path.name}"}, form, replayed=form is None)

    async def post_file(self, upload: Upload, file: SendableFile, progress: Callable[[int], None]) -> None:
        if failures := self.posts.get(file.path.name):
            raise failures.pop(0)
        progress(file.size)

    async def complete(self, upload_id: str) -> Mapping[str, Any]:
        self.completed.append(upload_id)
        return {"status": "processing"}

    async def asset(self, asset_id: str) -> Mapping[str, Any]:
        answers = self.assets.get(asset_id.removeprefix("a-"), [])
        answer = answers.pop(0) if answers else READY
        if answer["status"] in {"ready", "failed"}:
            self.open -= 1
        return answer


class Notes:
    """Keeps what was observed."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Step, str]] = []

    def step(self, path: Path, step: Step, note: str = "") -> None:
        self.steps.append((path.name, step, note))

    def sent(self, path: Path, sent_bytes: int) -> None:
        self.steps.append((path.name, Step.SENDING, str(sent_bytes)))


def photo(name: str) -> SendableFile:
    return SendableFile(Path(name), 1000, MediaType.JPEG)


async def send(uploads: ScriptedUploads, *names: str) -> tuple[list[Result], list[float]]:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    journey = UploadJourney(uploads, Notes(), pause=pause)
    return await journey.send_all([photo(name) for name in names]), pauses


async def test_a_photo_that_becomes_ready_gives_its_urls() -> None:
    uploads = ScriptedUploads()
    uploads.assets["a.jpg"] = [{"status": "pending"}, {"status": "processing"}]
    results, _ = await send(uploads, "a.jpg")
    assert results == [Result(Path("a.jpg"), "a-a.jpg", {"thumbnail": "https://cdn/t", "tile": "https://cdn/i"}, None)]


async def test_a_rate_limit_is_waited_out_for_as_long_as_it_says_under_the_same_key() -> None:
    uploads = ScriptedUploads({"a.jpg": [refusal(429, "foundation.rate_limited", 17.0)]})
    results, pauses = await send(uploads, "a.jpg")
    assert results[0].succeeded
    assert pauses[0] == 17.0
    assert len({key for _, key in uploads.keys}) == 1


async def test_too_many_open_uploads_are_waited_out() -> None:
    uploads = ScriptedUploads({"a.jpg": [refusal(422, "assets.too_many_open_uploads")] * 3})
    results, pauses = await send(uploads, "a.jpg")
    assert results[0].succeeded
    assert len(pauses) == 3


async def test_an_answer_that_got_lost_is_asked_for_again_under_the_same_key() -> None:
    uploads = ScriptedUploads({"a.jpg": [Unreachable("gone"), Unreachable("gone")]})
    results, _ = await send(uploads, "a.jpg")
    assert results[0].succeeded
    assert len(uploads.keys) == 3
    assert len({key for _, key in uploads.keys}) == 1


async def test_two_files_never_share_a_key() -> None:
    uploads = ScriptedUploads()
    await send(uploads, "a.jpg", "b.jpg")
    assert len({key for _, key in uploads.keys}) == 2


async def test_a_gateway_that_stays_away_is_reported_and_not_asked_forever() -> None:
    uploads = ScriptedUploads({"a.jpg": [Unreachable("Nobody answers.")] * 50})
    results, _ = await send(uploads, "a.jpg")
    assert results[0].explanation == "Nobody answers."
    assert len(uploads.keys) == 5


async def test_a_limit_of_the_plan_is_said_at_once_with_its_remedy() -> None:
    uploads = ScriptedUploads({"a.jpg": [refusal(422, "assets.asset_limit_reached")]})
    results, pauses = await send(uploads, "a.jpg")
    assert results[0].explanation == "Said no. Do something else. [assets.asset_limit_reached]"
    assert pauses == []


async def test_a_storage_that_is_not_configured_is_not_waited_for() -> None:
    uploads = ScriptedUploads({"a.jpg": [refusal(503, "assets.storage_unavailable")]})
    results, pauses = await send(uploads, "a.jpg")
    assert not results[0].succeeded
    assert pauses == []


async def test_one_bad_file_among_twenty_stops_no_other() -> None:
    names = [f"{number}.jpg" for number in range(20)]
    uploads = ScriptedUploads()
    failed = {"status": "failed", "failureCode": "image_corrupt"}
    failed["failure"] = {"message": "It is damaged.", "remedy": "Save it again."}  # type: ignore[assignment]
    uploads.assets["7.jpg"] = [failed]
    uploads.posts["9.jpg"] = [StorageRefused("Object storage refused the file: EntityTooLarge.")]
    results, _ = await send(uploads, *names)
    assert [result.path.name for result in results] == names
    explained = {result.path.name: result.explanation for result in results if not result.succeeded}
    assert explained == {
        "7.jpg": "It is damaged. Save it again.",
        "9.jpg": "Object storage refused the file: EntityTooLarge.",
    }


async def test_no_more_files_are_under_way_than_the_open_uploads_of_one_client() -> None:
    uploads = ScriptedUploads()
    await send(uploads, *(f"{number}.jpg" for number in range(40)))
    assert uploads.most_open == CONCURRENT_UPLOADS < 20


async def test_a_replay_whose_form_is_spent_waits_for_the_asset_without_posting_again() -> None:
    uploads = ScriptedUploads()
    uploads.replays_without_form.add("a.jpg")
    results, _ = await send(uploads, "a.jpg")
    assert results[0].succeeded
    assert uploads.completed == []


async def test_a_file_that_cannot_be_sent_is_never_asked_for() -> None:
    uploads = ScriptedUploads()
    journey = UploadJourney(uploads, Notes())
    results = await journey.send_all([UnsendableFile(Path("x.heic"), "It is a HEIC photo.", "Save it as JPEG.")])
    assert results[0].explanation == "It is a HEIC photo. Save it as JPEG."
    assert uploads.keys == []
