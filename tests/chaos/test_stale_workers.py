"""A worker that stood still past its lease and wakes up again: what it does then counts for nothing."""

import signal

from tests.chaos.scene import Scene, WorkerProcess, until
from tests.support import images
from tests.support.faults import method_and_path


async def test_a_worker_resumed_after_a_second_one_finished_has_its_late_result_refused(scene: Scene) -> None:
    barrier = scene.s3.hold(method_and_path("PUT", "/(m|a)/"), skip=1, holds=4)
    async with scene.worker() as stale:
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await barrier.reached()
        stale.send(signal.SIGSTOP)
        await scene.expire_leases()
        async with scene.worker():
            await scene.reaches(upload, "ready")
        stale.send(signal.SIGCONT)
        barrier.open()
        await stale.logged("lease lost, nothing recorded")
        # It goes on with the next photo as if nothing had been.
        another = await scene.uploads.receive(scene.store, images.jpeg(300, 200))
        await scene.reaches(another, "ready")
    assert await scene.violations() == []
    job = (await scene.jobs(upload))["process_upload"]
    assert (job["state"], job["attempt_count"], job["processing_error_count"]) == ("completed", 1, 1)
    assert await scene.audit_records(upload.asset_id) == ["assets.asset.upload_requested"]


async def test_a_worker_resumed_after_a_purge_leaves_no_object_behind(scene: Scene) -> None:
    barrier = scene.s3.hold(method_and_path("PUT", "/(m|a)/"), skip=1, holds=4)
    async with scene.worker() as stale:
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await barrier.reached()
        stale.send(signal.SIGSTOP)
        await scene.expire_leases()
        async with scene.worker():
            await scene.reaches(upload, "ready")
            assert len(await scene.stored(upload)) == 5
            await scene.erase(upload)
            await scene.reaches(upload, None)
        assert await scene.stored(upload) == []
        purged_before = len(scene.cdn.purged)
        stale.send(signal.SIGCONT)
        barrier.open()  # the writes that were under way arrive now, after the purge
        await stale.logged("unwanted objects taken back")
    assert await scene.stored(upload) == []
    assert await scene.violations() == []
    # What came back for a moment may have been fetched: its URLs were purged once more.
    assert len(scene.cdn.purged) == purged_before + 4


async def test_a_worker_whose_photo_is_erased_while_it_stores_leaves_no_object_behind(scene: Scene) -> None:
    barrier = scene.s3.hold(method_and_path("PUT", "/(m|a)/"), skip=2, holds=3)
    async with scene.worker() as storing, scene.worker() as purging:
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await barrier.reached()
        await scene.erase(upload)
        await scene.reaches(upload, None)
        barrier.open()
        await until(lambda: _logged("unwanted objects taken back", storing, purging))
    assert await scene.stored(upload) == []
    assert await scene.violations() == []
    assert await scene.uploads.usage() == (0, 0, 0)


async def test_a_worker_resumed_in_a_purge_that_another_one_finished_does_nothing_twice(scene: Scene) -> None:
    async with scene.worker() as stale:
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await scene.reaches(upload, "ready")
        barrier = scene.s3.hold(method_and_path("DELETE", "/(m|a|p)/"), skip=1, holds=4)
        await scene.erase(upload)
        await barrier.reached()
        stale.send(signal.SIGSTOP)
        await scene.expire_leases()
        async with scene.worker():
            await scene.reaches(upload, None)
        stale.send(signal.SIGCONT)
        barrier.open()
        await stale.logged("lease lost, nothing recorded")
    assert await scene.violations() == []
    assert (await scene.audit_records(upload.asset_id)).count("assets.asset.purged") == 1


async def _logged(event: str, *workers: WorkerProcess) -> bool:
    return any(line.get("event") == event for worker in workers for line in worker.lines)
