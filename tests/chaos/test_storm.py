"""Everything at once, from a seed: photos, a third of them corrupt, archived and restored while workers die."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from tests.chaos.scene import Scene, WorkerProcess, until
from tests.support import images
from tests.support.database import Connection
from tests.support.faults import HttpAnswer, method_and_path
from tests.support.uploads import Upload

_BUSY = HttpAnswer(503, b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>-</Message></Error>')


def _photo(chance: random.Random, number: int) -> bytes:
    photo = images.jpeg(200 + number, 160)
    return photo if number % 3 else photo[: chance.randint(200, len(photo) // 2)]


async def _uploads(scene: Scene, chance: random.Random, number: int) -> AsyncIterator[Upload]:
    """One after the other, never more open than the plan allows."""
    watcher = await scene.database.owner()  # this runs beside what the test does over its own connection
    for each in range(number):
        while await watcher.fetchval("SELECT count(*) FROM assets.uploads WHERE state IN ('issued', 'received')") > 15:
            await asyncio.sleep(0.05)
        yield await scene.uploads.receive(scene.store, _photo(chance, each))


async def _hurry(scene: Scene) -> None:
    while True:
        await scene.hurry()
        await asyncio.sleep(0.1)


async def _archive_and_restore(scene: Scene, library: Connection, upload: Upload) -> None:
    """Twice each, whatever the other member does meanwhile."""
    for statement in ("archive_asset", "archive_asset", "restore_asset", "restore_asset"):
        with contextlib.suppress(asyncpg.CheckViolationError):  # a failed asset is not restored
            async with library.transaction():
                outcome = await library.fetchval(
                    "SELECT outcome FROM identity.open_tenant_context"
                    "($1, $2, 'assets.media.manage', NULL, 'library', 'r')",
                    scene.uploads.person.token_hash,
                    scene.uploads.person.organization_id,
                )
                assert outcome == "authorized"
                await library.fetchval(f"SELECT assets.{statement}($1)", upload.asset_id)


@pytest.mark.parametrize("photos", [9, pytest.param(50, marks=pytest.mark.soak)])
async def test_photos_a_third_of_them_corrupt_each_archived_and_restored_twice_at_once(
    scene: Scene, photos: int
) -> None:
    chance = random.Random(photos)
    libraries = [await scene.database.login("ninaku_library") for _ in range(2)]
    async with scene.worker(), scene.worker(), asyncio.TaskGroup() as tasks:
        hurrying = tasks.create_task(_hurry(scene))
        uploads = [upload async for upload in _uploads(scene, chance, photos)]
        hurrying.cancel()
        await asyncio.wait({hurrying})

        async def by_one(library: Connection) -> None:
            for upload in chance.sample(uploads, len(uploads)):
                await _archive_and_restore(scene, library, upload)

        members = [tasks.create_task(by_one(library)) for library in libraries]
        await asyncio.gather(*members)
        for number, upload in enumerate(uploads):
            await scene.reaches(upload, "ready" if number % 3 else "failed", hurried=True)
    assert await scene.violations() == []
    row = await scene.owner.fetchrow("SELECT * FROM assets.organization_usage")
    living = await scene.owner.fetchval(
        "SELECT count(*) FROM assets.assets WHERE status = 'ready' AND archived_at IS NULL"
    )
    assert (row["active_asset_count"], row["reserved_bytes"]) == (living, 0)


class Weather:
    """What happens to workers, store and connections, as the seed has it."""

    def __init__(self, scene: Scene, chance: random.Random, stack: AsyncExitStack) -> None:
        self.scene = scene
        self.chance = chance
        self.stack = stack
        self.workers: list[WorkerProcess] = []

    async def hire(self) -> None:
        """Start one more worker."""
        self.workers.append(await self.stack.enter_async_context(self.scene.worker()))

    async def strike(self) -> str:
        """One thing goes wrong; its name, for the log of a failure."""
        name = self.chance.choice(["kill", "kill_child", "stop", "cut", "busy", "reset", "leases", "erase"])
        await getattr(self, f"_{name}")()
        return name

    async def bury_the_dead(self) -> None:
        """Shift the leases of workers that are gone into the past."""
        living = [f":{worker.pid}" for worker in self.workers]
        await self.scene.owner.execute(
            "UPDATE assets.processing_jobs SET lease_expires_at = now() - interval '1 second'"
            " WHERE state = 'leased' AND lease_expires_at > now()"
            " AND substring(lease_owner FROM ':[0-9]+$') <> ALL ($1)",
            living,
        )

    async def _kill(self) -> None:
        worker = self.workers.pop(self.chance.randrange(len(self.workers)))
        await worker.kill()
        await self._leases()
        await self.hire()

    async def _kill_child(self) -> None:
        try:
            os.kill(self.chance.choice(self.workers).child, signal.SIGKILL)
        except (ValueError, ProcessLookupError):
            return  # it is being replaced at this moment

    async def _stop(self) -> None:
        worker = self.chance.choice(self.workers)
        worker.send(signal.SIGSTOP)
        await self._leases()
        await asyncio.sleep(self.chance.uniform(0.2, 1.0))
        worker.send(signal.SIGCONT)

    async def _cut(self) -> None:
        self.scene.postgres.cut_all()

    async def _busy(self) -> None:
        self.scene.s3.answer(method_and_path(self.chance.choice(["PUT", "GET", "DELETE"]), "."), _BUSY, times=5)

    async def _reset(self) -> None:
        self.scene.s3.cut(method_and_path("PUT", "/(m|a)/"), times=5)

    async def _leases(self) -> None:
        await self.scene.expire_leases()

    async def _erase(self) -> None:
        asset_id = await self.scene.owner.fetchval(
            "SELECT id FROM assets.assets WHERE status IN ('processing', 'ready', 'failed')"
            " ORDER BY id OFFSET $1 LIMIT 1",
            self.chance.randrange(4),
        )
        if asset_id is not None:
            await self.scene.owner.fetch("SELECT * FROM assets.erase_asset($1)", asset_id)


@pytest.mark.parametrize(
    ("photos", "strikes"), [(6, 6), pytest.param(60, 80, marks=pytest.mark.soak)], ids=["short", "long"]
)
async def test_after_any_weather_everything_is_settled_and_nothing_is_lost_doubled_or_left(
    scene: Scene, photos: int, strikes: int
) -> None:
    seed = int(os.environ.get("SOAK_SEED") or (7 if photos < 10 else random.randrange(1_000_000)))
    print(f"seed {seed}: SEED={seed} repeats it", file=sys.stderr)
    chance = random.Random(seed)
    struck: list[str] = []
    async with AsyncExitStack() as stack:
        weather = Weather(scene, chance, stack)
        await weather.hire()
        await weather.hire()

        async def send() -> None:
            async for _ in _uploads(scene, chance, photos):
                await asyncio.sleep(chance.uniform(0, 0.3))

        sending = asyncio.create_task(send())
        for _ in range(strikes):
            struck.append(await weather.strike())
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            await scene.hurry()
        while not sending.done():
            await scene.hurry()
            await weather.bury_the_dead()
            await asyncio.sleep(0.1)
        await sending
        scene.s3.calm()

        async def settled() -> bool:
            await scene.hurry()
            await weather.bury_the_dead()
            return await scene.violations() == []

        try:
            await until(settled)
        except TimeoutError:
            assert await scene.violations() == [], struck
