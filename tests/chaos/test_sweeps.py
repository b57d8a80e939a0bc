"""Sweeps that meet each other, a completion, or a row that raises."""

import asyncio
import random
from typing import Any

from tests.chaos.scene import Scene, until
from tests.support.uploads import Upload


async def _abandoned(scene: Scene, number: int) -> list[Upload]:
    return [await scene.uploads.reserve(1_000, expires_in_seconds=-60) for _ in range(number)]


async def _all_failed(scene: Scene, uploads: list[Upload]) -> None:
    for upload in uploads:
        await scene.reaches(upload, "failed")


async def test_a_row_that_raises_stops_no_other_and_is_settled_once_it_no_longer_does(scene: Scene) -> None:
    uploads = await _abandoned(scene, 4)
    poison = uploads[1]
    await scene.owner.execute(
        "CREATE FUNCTION assets.raise_for_tests() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'a rule that nobody thought of'; END $$"
    )
    await scene.owner.execute(
        "CREATE TRIGGER raise_for_tests BEFORE UPDATE ON assets.uploads FOR EACH ROW"
        f" WHEN (OLD.id = '{poison.upload_id}') EXECUTE FUNCTION assets.raise_for_tests()"
    )
    async with scene.worker() as worker:
        await _all_failed(scene, [upload for upload in uploads if upload is not poison])
        await worker.logged("uploads cannot be expired")
        assert await scene.uploads.state(poison) == "issued"
        assert await scene.violations(settled=False) == []
    await scene.owner.execute("DROP TRIGGER raise_for_tests ON assets.uploads")
    await scene.sweep_is_due("expire_uploads")
    async with scene.worker():
        await scene.reaches(poison, "failed")
    assert await scene.violations() == []
    assert await scene.uploads.usage() == (0, 0, 0)


async def test_a_counter_that_drifted_is_counted_anew_and_the_sweep_goes_on(scene: Scene) -> None:
    uploads = await _abandoned(scene, 3)
    await scene.owner.execute("UPDATE assets.organization_usage SET reserved_bytes = 0, active_asset_count = 0")
    async with scene.worker():
        await _all_failed(scene, uploads)
    assert await scene.violations() == []


async def test_two_workers_that_sweep_at_once_expire_every_upload_once(scene: Scene) -> None:
    uploads = await _abandoned(scene, 12)
    for upload in uploads:
        await scene.store.put("s3-private", upload.staging_key, b"never completed", "image/jpeg", None)
    async with scene.worker(), scene.worker():
        await scene.sweep_is_due("expire_uploads")
        await _all_failed(scene, uploads)

        async def staging_is_gone() -> bool:
            return all([await scene.store.head("s3-private", upload.staging_key) is None for upload in uploads])

        await until(staging_is_gone)
    assert await scene.violations() == []
    assert await scene.uploads.usage() == (0, 0, 0)
    assert len(await scene.stored(uploads[0])) == 0


async def test_a_sweep_racing_completions_lets_each_upload_go_one_way_only(scene: Scene) -> None:
    uploads = [await scene.uploads.reserve(1_000) for _ in range(16)]
    # Expired for the sweep's clock in the moment in which the completions come.
    moment = 0.4
    await scene.owner.execute(
        "UPDATE assets.uploads SET created_at = now() - interval '1 hour',"
        " expires_at = clock_timestamp() + make_interval(secs => $1)",
        moment,
    )
    sweeper = await scene.database.login("ninaku_processing_worker")
    chance = random.Random(1)

    async def sweep() -> None:
        for _ in range(40):
            async with sweeper.transaction():
                await sweeper.fetch("SELECT * FROM assets.expire_uploads(5, '{}')")
            await asyncio.sleep(0.02)

    outcomes: dict[Any, str] = {}

    async def complete() -> None:
        for upload in chance.sample(uploads, len(uploads)):
            await asyncio.sleep(moment / 10)
            try:
                await scene.uploads.complete(upload)
                outcomes[upload.asset_id] = "processing"
            except AssertionError:
                outcomes[upload.asset_id] = "failed"

    await asyncio.gather(sweep(), complete())
    for upload in uploads:
        assert await scene.status(upload) == outcomes[upload.asset_id]
    assert {"processing", "failed"} == set(outcomes.values())
    assert await scene.violations(settled=False) == []
    waiting = sum(outcome == "processing" for outcome in outcomes.values())
    assert await scene.uploads.usage() == (waiting, 1_000 * waiting, 0)
