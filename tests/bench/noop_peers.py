"""No-op jobs through procrastinate, PgQueuer and a bare loop, in the environment that ``tests.bench.noop_jobs`` makes.

``python noop_peers.py NAME DATABASE_URL JOBS RUNNERS`` prints jobs per second, one number.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncpg


async def bare(url: str, jobs: int, runners: int) -> float:
    """One claim and one completion each, with a partial index, as little as a queue can do."""
    pool = await asyncpg.create_pool(url, min_size=runners, max_size=runners)
    await pool.execute("CREATE TABLE bare_jobs (id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'pending')")
    await pool.execute("CREATE INDEX bare_jobs_pending ON bare_jobs (id) WHERE state = 'pending'")
    await pool.execute("INSERT INTO bare_jobs (state) SELECT 'pending' FROM generate_series(1, $1::int)", jobs)
    await pool.execute("ANALYZE bare_jobs")

    async def run() -> None:
        async with pool.acquire() as connection:
            while True:
                claimed = await connection.fetchval(
                    """UPDATE bare_jobs SET state = 'leased' WHERE id = (SELECT id FROM bare_jobs
                       WHERE state = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"""
                )
                if claimed is None:
                    return
                await connection.execute("UPDATE bare_jobs SET state = 'completed' WHERE id = $1", claimed)

    started = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(runners)))
    elapsed = time.perf_counter() - started
    await pool.close()
    return jobs / elapsed


async def procrastinate_at(url: str, jobs: int, runners: int, *, delete: bool) -> float:
    """One worker with as many concurrent jobs as there are runners."""
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=runners + 2))

    @app.task(name="noop")
    async def noop() -> None:
        return None

    async with app.open_async():
        if not delete:
            await app.schema_manager.apply_schema_async()
        for _ in range(jobs // 500):
            await noop.batch_defer_async(*({} for _ in range(500)))
        started = time.perf_counter()
        await app.run_worker_async(
            concurrency=runners,
            wait=False,
            listen_notify=False,
            install_signal_handlers=False,
            delete_jobs="always" if delete else None,
        )
        return jobs // 500 * 500 / (time.perf_counter() - started)


async def procrastinate_best(url: str, jobs: int, runners: int) -> float:
    """The better of keeping and deleting finished jobs."""
    kept = await procrastinate_at(url, jobs, runners, delete=False)
    return max(kept, await procrastinate_at(url, jobs, runners, delete=True))


async def pgqueuer_at(url: str, jobs: int, runners: int, *, batch: int) -> float:
    """Batches of the given size over a pool of as many connections as there are runners."""
    from pgqueuer.db import AsyncpgPoolDriver
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    pool = await asyncpg.create_pool(url, min_size=2, max_size=runners + 2)
    driver = AsyncpgPoolDriver(pool)
    queries = Queries(driver)
    if not await queries.schema_is_installed():
        await queries.install()
    manager = QueueManager(queries)

    @manager.entrypoint("noop")
    async def noop(job: object) -> None:
        return None

    for _ in range(jobs // 500):
        await queries.enqueue(["noop"] * 500, [None] * 500, [0] * 500)
    started = time.perf_counter()
    await manager.run(
        dequeue_timeout=timedelta(seconds=1),
        batch_size=batch,
        max_concurrent_tasks=max(runners, 2 * batch),
        mode=QueueExecutionMode.drain,
    )
    elapsed = time.perf_counter() - started
    await pool.close()
    return jobs // 500 * 500 / elapsed


async def pgqueuer_one(url: str, jobs: int, runners: int) -> float:
    """One job a claim."""
    return await pgqueuer_at(url, jobs, runners, batch=1)


async def pgqueuer_default(url: str, jobs: int, runners: int) -> float:
    """Ten jobs a claim, as it comes."""
    return await pgqueuer_at(url, jobs, runners, batch=10)


PEERS: dict[str, Callable[[str, int, int], Awaitable[float]]] = {
    "bare": bare,
    "procrastinate": procrastinate_best,
    "pgqueuer-1": pgqueuer_one,
    "pgqueuer-10": pgqueuer_default,
}

if __name__ == "__main__":
    print(f"{asyncio.run(PEERS[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))):.1f}")  # type: ignore[arg-type]
