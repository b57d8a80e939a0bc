"""A photo that does not fit into memory, and a worker that dies of it together with its child."""

import asyncio
from datetime import UTC, datetime

import pytest
from opentelemetry.metrics import NoOpMeter

from libs.assets.public_urls import PublicUrls
from libs.assets.uuid7 import uuid7
from libs.database.engine import create_database
from services.processing.cdn import NothingCached
from services.processing.child import Decoder, DecoderLimits
from services.processing.domain import JobKind
from services.processing.erasure import Eraser
from services.processing.instruments import Instruments
from services.processing.late_writes import LateWrites
from services.processing.loop import JobLoop, Pace
from services.processing.process_upload import ProcessUpload
from services.processing.repository import ProcessingRepository
from services.processing.wakeups import Wakeups
from tests.chaos.scene import Scene, until
from tests.support import images
from tests.support.faults import method_and_path


async def test_a_photo_that_does_not_fit_is_dead_lettered_at_the_fifth_and_the_others_go_on(scene: Scene) -> None:
    # What the interpreter and libvips map, and room for a small photo: not for 36 progressive megapixels.
    decoder = Decoder(DecoderLimits(memory_bytes=230 * 1024 * 1024))
    large = images.encode(images.quadrants(6_000, 6_000), "JPEG", progressive=True)
    database = create_database(scene.database.dsn("ninaku_processing_worker"), pool_size=3, application_name="tests")
    repository = ProcessingRepository(database, "tests")
    instruments = Instruments(NoOpMeter("tests"))
    eraser = Eraser(scene.store, PublicUrls("https://media.example.com"), NothingCached())
    loop = JobLoop(
        repository,
        {JobKind.PROCESS_UPLOAD.value: ProcessUpload(scene.store, decoder, uuid7, lambda: datetime.now(UTC))},
        scene.store,
        wakeups=Wakeups(),
        pace=Pace(lease=120, poll=0.5),
        instruments=instruments,
        lost_work=LateWrites(repository, eraser, instruments),
    )
    stopping = asyncio.Event()
    running = asyncio.create_task(loop.run(stopping))
    try:
        huge = await scene.uploads.receive(scene.store, large)
        small = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await scene.reaches(small, "ready", hurried=True)
        await scene.reaches(huge, "failed", hurried=True)
        last = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await scene.reaches(last, "ready", hurried=True)
    finally:
        stopping.set()
        await running
        await decoder.close()
        await database.close()
    job = (await scene.jobs(huge))["process_upload"]
    assert (job["state"], job["processing_error_count"]) == ("dead_lettered", 5)
    assert (job["error_class"], job["last_error_code"]) == ("processing", "assets.processing_error")
    assert await scene.violations() == []


@pytest.mark.soak
async def test_a_photo_that_takes_worker_and_child_with_it_is_dead_lettered_at_the_fifth(scene: Scene) -> None:
    upload = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
    for _ in range(5):
        scene.s3.calm()
        barrier = scene.s3.hold_answer(method_and_path("GET", upload.staging_key))
        async with scene.worker() as worker:
            await barrier.reached()
            await worker.kill()  # its child dies with it, by the kernel's hand
        barrier.open()
        await scene.expire_leases()
    scene.s3.calm()
    async with scene.worker():
        await scene.reaches(upload, "failed")
        another = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await scene.reaches(another, "ready")
    job = (await scene.jobs(upload))["process_upload"]
    assert (job["state"], job["processing_error_count"]) == ("dead_lettered", 5)
    assert job["last_error_code"] == "assets.lease_expired"

    async def settled() -> bool:
        return await scene.violations() == []

    await until(settled)
