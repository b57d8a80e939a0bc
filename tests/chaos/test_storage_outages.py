"""Object storage that is away, slow, overloaded or cut off, in front of real workers."""

import asyncio

import pytest

from tests.chaos.scene import Scene, until
from tests.support import images
from tests.support.faults import HttpAnswer, method_and_path
from tests.support.uploads import Upload

_ERROR = '<?xml version="1.0"?><Error><Code>{}</Code><Message>-</Message></Error>'


async def _storage_retries(scene: Scene, upload: Upload, at_least: int) -> None:
    async def enough() -> bool:
        await scene.hurry()
        return bool((await scene.jobs(upload))["process_upload"]["attempt_count"] >= at_least)

    await until(enough)


async def test_an_outage_longer_than_the_longest_backoff_step_costs_no_photo(scene: Scene) -> None:
    uploads = [await scene.uploads.receive(scene.store, images.jpeg(300 + each, 200)) for each in range(3)]
    await scene.storage.stop()
    try:
        async with scene.worker():
            for upload in uploads:
                await _storage_retries(scene, upload, 2)
            # As if it had lasted for hours: the next step is the longest there is.
            await scene.owner.execute("UPDATE assets.processing_jobs SET attempt_count = 200")
            await _storage_retries(scene, uploads[0], 201)
            job = (await scene.jobs(uploads[0]))["process_upload"]
            assert (job["error_class"], job["last_error_code"]) == ("storage", "assets.storage_unavailable")
            assert job["processing_error_count"] == 0
            await scene.storage.start()
            for upload in uploads:
                await scene.reaches(upload, "ready", hurried=True)
    finally:
        if scene.storage.pid is None:
            await scene.storage.start()
    assert await scene.violations() == []
    assert (await scene.uploads.usage())[:2] == (3, 0)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(HttpAnswer(500, _ERROR.format("InternalError").encode()), marks=pytest.mark.soak),
        HttpAnswer(503, _ERROR.format("SlowDown").encode()),
        pytest.param(None, marks=pytest.mark.soak),
    ],
    ids=["500", "SlowDown", "reset"],
)
async def test_a_store_in_trouble_is_a_storage_retry_wherever_it_strikes(
    scene: Scene, trouble: HttpAnswer | None
) -> None:
    puts = method_and_path("PUT", "/(m|a)/")
    if trouble is None:
        scene.s3.cut(puts)
    else:
        scene.s3.answer(puts, trouble)
    async with scene.worker():
        upload = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await _storage_retries(scene, upload, 2)
        job = (await scene.jobs(upload))["process_upload"]
        assert (job["error_class"], job["last_error_code"]) == ("storage", "assets.storage_unavailable")
        scene.s3.calm()
        await scene.reaches(upload, "ready", hurried=True)
    assert await scene.violations() == []
    assert (await scene.jobs(upload))["process_upload"]["processing_error_count"] == 0


async def test_a_store_that_takes_only_some_of_the_objects_leaves_one_set_of_them_in_the_end(scene: Scene) -> None:
    tile = method_and_path("PUT", "/a/.*/tile")
    scene.s3.answer(tile, HttpAnswer(503, _ERROR.format("SlowDown").encode()), times=4)
    async with scene.worker():
        upload = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await scene.reaches(upload, "ready", hurried=True)
    assert await scene.violations() == []
    assert (await scene.jobs(upload))["process_upload"]["attempt_count"] >= 1


@pytest.mark.soak
async def test_a_put_whose_answer_is_lost_is_put_again(scene: Scene) -> None:
    lost = 2

    async def lose(request: object) -> HttpAnswer | None:
        nonlocal lost
        if lost > 0 and method_and_path("PUT", "/m/")(request):  # type: ignore[arg-type]
            lost -= 1
            return HttpAnswer(502, b"")
        return None

    scene.s3.after.append(lose)
    async with scene.worker():
        upload = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await scene.reaches(upload, "ready", hurried=True)
    assert lost == 0
    assert await scene.violations() == []


async def test_a_purge_goes_on_after_storage_and_the_cdn_are_back(scene: Scene) -> None:
    deletes = method_and_path("DELETE", "/(m|a)/")
    async with scene.worker():
        upload = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await scene.reaches(upload, "ready")
        scene.s3.answer(deletes, HttpAnswer(503, _ERROR.format("SlowDown").encode()))
        scene.cdn.trouble = ["refused", "limited", "down", "reset", "html", "unsuccessful"]
        await scene.erase(upload)

        async def has_failed() -> bool:
            job = (await scene.jobs(upload))["purge_asset"]
            return bool(job["last_error_code"] == "assets.storage_unavailable" and job["attempt_count"] >= 1)

        await until(has_failed)
        assert scene.cdn.purged == []
        assert await scene.violations(settled=False) == []
        scene.s3.calm()
        await scene.reaches(upload, None, hurried=True)
    assert scene.cdn.trouble == []
    assert len(scene.cdn.purged) == 4
    assert await scene.violations() == []


@pytest.mark.soak
async def test_a_put_that_outlasts_the_lease_is_a_storage_retry_and_the_lease_is_kept(scene: Scene) -> None:
    barrier = scene.s3.hold(method_and_path("PUT", "/m/"), holds=1)
    async with scene.worker(ASSETS_IMAGE_LEASE_SECONDS="30"):
        upload = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await barrier.reached()
        async with asyncio.timeout(60):
            while (await scene.jobs(upload))["process_upload"]["attempt_count"] == 0:
                await asyncio.sleep(0.1)
        job = (await scene.jobs(upload))["process_upload"]
        assert (job["state"], job["error_class"], job["processing_error_count"]) == ("pending", "storage", 0)
        barrier.open()
        await scene.reaches(upload, "ready", hurried=True)
    assert await scene.violations() == []
