"""kill -9, at every step that a job has. What the dead left behind is taken up by the next worker, once."""

import os
import signal
from typing import Any

import pytest

from tests.chaos.scene import Scene, until
from tests.support import images
from tests.support.faults import Barrier, method_and_path
from tests.support.uploads import Upload

PUT, HEAD, DELETE = "PUT", "HEAD", "DELETE"


def _rarely(*values: Any) -> list[Any]:
    """Steps that `make soak` takes: the others are taken at every run."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


async def _next_worker_finishes(scene: Scene, upload: Upload) -> None:
    await scene.expire_leases()
    async with scene.worker():
        await scene.reaches(upload, "ready", hurried=True)
    assert await scene.violations() == []
    assert len(await scene.stored(upload)) == 5


async def _nothing_arrives_any_more(scene: Scene, barrier: Barrier) -> None:
    """The dead worker's connections end, and what stood at the barrier never reaches the server."""
    scene.postgres.cut_all()
    await until(scene.postgres_is_idle)
    barrier.open()


def _after_claim(scene: Scene) -> Barrier:
    return scene.s3.hold(method_and_path(HEAD, "/in/"))


def _between_two_puts(scene: Scene) -> Barrier:
    return scene.s3.hold(method_and_path(PUT, "/(m|a)/"), skip=2)


def _after_the_last_put(scene: Scene) -> Barrier:
    return scene.s3.hold_answer(method_and_path(PUT, "/m/"))


def _before_record(scene: Scene) -> Barrier:
    return scene.postgres.hold("record_processing_outcome")


def _before_commit(scene: Scene) -> Barrier:
    return scene.postgres.hold("COMMIT", after="record_processing_outcome")


@pytest.mark.parametrize(
    "step", [*_rarely(_after_claim, _after_the_last_put, _before_record), _between_two_puts, _before_commit]
)
async def test_a_worker_killed_at_any_step_loses_nothing_and_does_nothing_twice(scene: Scene, step) -> None:  # type: ignore[no-untyped-def]
    barrier: Barrier = step(scene)
    async with scene.worker() as worker:
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await barrier.reached()
        await worker.kill()
    await _nothing_arrives_any_more(scene, barrier)
    assert await scene.status(upload) == "processing"
    await _next_worker_finishes(scene, upload)
    job = (await scene.jobs(upload))["process_upload"]
    assert (job["state"], job["processing_error_count"]) == ("completed", 1)


async def test_a_record_that_arrives_after_its_worker_died_counts_and_is_not_repeated(scene: Scene) -> None:
    barrier = _before_commit(scene)
    async with scene.worker() as worker:
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await barrier.reached()
        await worker.kill()
    barrier.open()
    await scene.reaches(upload, "ready")
    async with scene.worker() as worker:
        another = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await scene.reaches(another, "ready")
    assert await scene.violations() == []
    assert (await scene.jobs(upload))["process_upload"]["attempt_count"] == 0


@pytest.mark.soak
async def test_a_worker_killed_while_its_child_decodes(scene: Scene) -> None:
    async with scene.worker() as worker:
        child = worker.child
        os.kill(child, signal.SIGSTOP)
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await _read_through(scene, upload)
        await worker.kill()
    await _next_worker_finishes(scene, upload)


async def test_a_child_killed_while_it_decodes_costs_one_processing_error_and_is_replaced(scene: Scene) -> None:
    async with scene.worker() as worker:
        child = worker.child
        os.kill(child, signal.SIGSTOP)
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await _read_through(scene, upload)
        os.kill(child, signal.SIGKILL)
        await scene.reaches(upload, "ready", hurried=True)
        assert worker.child != child
    assert await scene.violations() == []
    job = (await scene.jobs(upload))["process_upload"]
    assert (job["state"], job["processing_error_count"], job["attempt_count"]) == ("completed", 1, 1)


async def test_a_worker_killed_after_its_record_and_before_the_staging_delete_leaves_a_ready_asset(
    scene: Scene,
) -> None:
    barrier = scene.s3.hold(method_and_path(DELETE, "/in/"))
    async with scene.worker() as worker:
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await barrier.reached()
        await worker.kill()
    assert await scene.status(upload) == "ready"
    assert await scene.violations() == []


async def _purge_barriers(scene: Scene, step: str) -> Barrier:
    if step == "cdn":
        scene.cdn.barrier = Barrier()
        return scene.cdn.barrier
    if step.startswith("sql "):
        return scene.postgres.hold(step.removeprefix("sql "))
    return scene.s3.hold(method_and_path(DELETE, "/(m|a)/"), skip=int(step.removeprefix("delete ")))


@pytest.mark.parametrize(
    "step", [*_rarely("sql purge_asset_begin", "delete 0", "cdn"), "delete 3", "sql purge_asset_finish"]
)
async def test_a_worker_killed_at_any_step_of_a_purge_leaves_it_to_the_next(scene: Scene, step: str) -> None:
    async with scene.worker() as worker:
        upload = await scene.uploads.receive(scene.store, images.jpeg(400, 300))
        await scene.reaches(upload, "ready")
        barrier = await _purge_barriers(scene, step)
        await scene.erase(upload)
        await barrier.reached()
        await worker.kill()
    await _nothing_arrives_any_more(scene, barrier)
    assert await scene.status(upload) == "purging"
    assert await scene.violations(settled=False) == []
    await scene.expire_leases()
    async with scene.worker():
        await scene.reaches(upload, None, hurried=True)
    assert await scene.violations() == []
    assert await scene.stored(upload) == []
    assert {url.rpartition("/")[2] for url in scene.cdn.purged} == {
        "thumbnail.webp",
        "tile.webp",
        "card.webp",
        "detail.webp",
    }
    assert (await scene.audit_records(upload.asset_id)).count("assets.asset.purged") == 1


@pytest.mark.parametrize("held", ["sql COMMIT", *_rarely("staging delete")])
async def test_a_worker_killed_in_the_middle_of_a_sweep(scene: Scene, held: str) -> None:
    uploads = [await scene.uploads.reserve(1_000, expires_in_seconds=-60) for _ in range(3)]
    in_sql = held == "sql COMMIT"
    sql, delete = ("COMMIT", "expire_uploads"), method_and_path(DELETE, "/in/")
    barrier = scene.postgres.hold(sql[0], after=sql[1]) if in_sql else scene.s3.hold(delete)
    async with scene.worker() as worker:
        await barrier.reached()
        await worker.kill()
    await _nothing_arrives_any_more(scene, barrier)
    await scene.sweep_is_due("expire_uploads")
    async with scene.worker():
        for upload in uploads:
            await scene.reaches(upload, "failed")
    assert await scene.violations() == []
    assert await scene.uploads.usage() == (0, 0, 0)


async def _read_through(scene: Scene, upload: Upload) -> None:
    """Until the worker has read the staged bytes: what comes next is the decoding."""
    barrier = scene.s3.hold_answer(method_and_path("GET", upload.staging_key))
    barrier.open()
    await barrier.reached()
