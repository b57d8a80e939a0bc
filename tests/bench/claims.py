"""What a claim costs with a million finished and a hundred thousand waiting jobs, beside a queue of a thousand.

Target (DESIGN §7): at most 1.3 × the time at a thousand. Each sample is one claim by the worker's login; the job is
given back before the next, at its old place. Run as ``python -m tests.bench.claims``.
"""

import secrets
import statistics
import tempfile
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import asyncpg
import uvloop

from database import migrate
from services.cli.local.postgres import LocalPostgres

WAITING: Final = {"small": 1_000, "large": 100_000}
FINISHED: Final = {"small": 1_000, "large": 1_000_000}
ROUNDS: Final = 7
CLAIMS: Final = 200


async def main() -> None:
    """Fill both queues, claim from them in turn, print the medians and their ratio."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ninaku-bench-")))
        folder.chmod(0o711)
        server = await stack.enter_async_context(
            LocalPostgres(folder / "postgres", durable=False, die_with_parent=True)
        )
        passwords = {login: secrets.token_hex(8) for login in migrate.LOGINS}
        workers: dict[str, asyncpg.Connection] = {}
        for name in WAITING:
            await migrate.create(server.admin_dsn, name, passwords)
            await _fill(server.dsn(migrate.MIGRATOR, passwords[migrate.MIGRATOR], name), name)
            login = "ninaku_processing_worker"
            workers[name] = await asyncpg.connect(server.dsn(login, passwords[login], name))
            await _claims(workers[name], 50)
        medians: dict[str, list[float]] = {name: [] for name in WAITING}
        for _ in range(ROUNDS):
            for name, connection in workers.items():
                medians[name].append(statistics.median(await _claims(connection, CLAIMS)))
        ratios = [large / small for large, small in zip(medians["large"], medians["small"], strict=True)]
        for name, values in medians.items():
            print(
                f"  {FINISHED[name]:>9,} finished, {WAITING[name]:>7,} waiting: "
                f"{1_000 * statistics.median(values):.2f} ms a claim"
            )
        print(f"claim at a million: {statistics.median(ratios):.2f} of the time at a thousand (target 1.3 or less)")
        for connection in workers.values():
            await connection.close()


async def _claims(connection: asyncpg.Connection, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        token = uuid.uuid4()
        started = time.perf_counter()
        job = await connection.fetchval(
            "SELECT job_id FROM assets.claim_processing_job('bench', $1, 120, '{process_upload,purge_asset}')", token
        )
        seconds.append(time.perf_counter() - started)
        if await connection.fetchval("SELECT assets.release_processing_job($1, $2)", job, token) != "released":
            raise SystemExit("a claimed job could not be given back")
    return seconds


async def _fill(dsn: str, name: str) -> None:
    owner = await asyncpg.connect(dsn, timeout=30)
    try:
        organizations = [
            await owner.fetchval("SELECT identity.create_organization($1)", f"Bench {number}") for number in range(20)
        ]
        await owner.execute(_ASSETS, organizations, WAITING[name], timeout=600)
        await owner.execute(_FINISHED, FINISHED[name], timeout=600)
        await owner.execute(_WAITING, timeout=600)
        await owner.execute("VACUUM (ANALYZE)", timeout=600)
    finally:
        await owner.close()


_ASSETS: Final = """
WITH seeded AS (
    SELECT uuidv7() AS asset_id, uuidv7() AS upload_id,
        ($1::uuid[])[1 + number % cardinality($1::uuid[])] AS organization_id,
        translate(substr(md5('d' || number), 1, 26), '0189', 'ghij') AS token,
        encode(sha256(convert_to(number::text, 'UTF8')), 'hex') AS hash
    FROM generate_series(1, $2::integer) AS series (number)
), made_assets AS (
    INSERT INTO assets.assets (id, organization_id, access_class, delivery_token, status)
    SELECT asset_id, organization_id, 'public', token, 'processing' FROM seeded
), made_variants AS (
    INSERT INTO assets.asset_variants (id, organization_id, asset_id, variant_code, status)
    SELECT uuidv7(), organization_id, asset_id, 'original', 'processing' FROM seeded
)
INSERT INTO assets.uploads (id, organization_id, asset_id, staging_provider_id, staging_object_key,
    declared_media_type, declared_byte_size, state, expires_at, received_at, creation_idempotency_key,
    creation_request_hash)
SELECT upload_id, organization_id, asset_id, (SELECT id FROM assets.storage_providers WHERE code = 's3-private'),
    'in/' || token, 'image/jpeg', 1000, 'received', now() + interval '15 minutes', now(), gen_random_uuid(), hash
FROM seeded
"""
_FINISHED: Final = """
INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, state, queue_rank, completed_at)
SELECT uuidv7(), a.organization_id, a.id, 'process_upload', 'completed', number, now()
FROM generate_series(1, $1::integer) AS series (number)
CROSS JOIN LATERAL (SELECT id, organization_id FROM assets.assets ORDER BY id LIMIT 1) AS a
"""
_WAITING: Final = """
INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind)
SELECT uuidv7(), organization_id, id, 'process_upload' FROM assets.assets
"""

if __name__ == "__main__":
    uvloop.run(main())
