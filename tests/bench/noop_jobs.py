"""No-op jobs per second, one claim and one completion each, eight runners, durable commits, beside other queues.

Ours is the real queue: ``claim_processing_job`` and ``record_processing_outcome('failed_permanent')``, which settles
asset, upload, variant and usage in the same commit. Targets (DESIGN §7): 3 × procrastinate at its best, half of a bare
claim/complete loop. Run as ``python -m tests.bench.noop_jobs``; installs the peers with hashes into build/bench.
"""

import asyncio
import secrets
import statistics
import subprocess
import sys
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

JOBS: Final = 3_000
RUNNERS: Final = 8
ROUNDS: Final = 3
TRIES: Final = 3
ORGANIZATIONS: Final = 200
PEERS: Final = ("bare", "procrastinate", "pgqueuer-1", "pgqueuer-10")
_ROOT: Final = Path(__file__).resolve().parents[2]
_PEERS_ENVIRONMENT: Final = _ROOT / "build" / "bench" / "queues"


async def main() -> None:
    """Measure every candidate in turn, round by round, and print the rates and our ratios."""
    python = _install_peers()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ninaku-bench-")))
        folder.chmod(0o711)
        server = await stack.enter_async_context(LocalPostgres(folder / "postgres", durable=True, die_with_parent=True))
        passwords = {login: secrets.token_hex(8) for login in migrate.LOGINS}
        rates: dict[str, list[float]] = {name: [] for name in ("ours", *PEERS)}
        for number in range(ROUNDS):
            database = f"ours_{number}"
            await migrate.create(server.admin_dsn, database, passwords)
            rates["ours"].append(
                await _ours(
                    server.dsn(migrate.MIGRATOR, passwords[migrate.MIGRATOR], database),
                    server.dsn("ninaku_processing_worker", passwords["ninaku_processing_worker"], database),
                )
            )
            for name in PEERS:
                rates[name].append(await _peer(python, server, name, f"{name.replace('-', '_')}_{number}"))
            print("  " + "   ".join(f"{name} {values[-1]:.0f}/s" for name, values in rates.items()), flush=True)
    median = {name: statistics.median(values) for name, values in rates.items()}
    for name, target in (("procrastinate", "3 or more"), ("bare", "0.5 or more")):
        print(f"no-op jobs, {RUNNERS} runners: {median['ours'] / median[name]:.2f} × {name} (target {target})")
    for name in ("pgqueuer-1", "pgqueuer-10"):
        print(f"no-op jobs, {RUNNERS} runners: {median['ours'] / median[name]:.2f} × {name}")


async def _ours(owner_dsn: str, worker_dsn: str) -> float:
    owner = await asyncpg.connect(owner_dsn)
    try:
        organizations = [
            await owner.fetchval("SELECT identity.create_organization($1)", f"Bench {number}")
            for number in range(ORGANIZATIONS)
        ]
        await owner.execute(_SEED, organizations, JOBS)
        await owner.execute("ANALYZE")
    finally:
        await owner.close()
    connections = [await asyncpg.connect(worker_dsn) for _ in range(RUNNERS)]
    done = 0

    async def run(connection: asyncpg.Connection) -> None:
        nonlocal done
        while True:
            token = uuid.uuid4()
            job = await connection.fetchrow(_CLAIM, "bench", token, 120, ["process_upload"])
            if job is None:
                return
            await connection.fetchval(_RECORD, job["job_id"], token, "failed_permanent", "assets.image_corrupt")
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(run(connection) for connection in connections))
    elapsed = time.perf_counter() - started
    for connection in connections:
        await connection.close()
    if done != JOBS:
        raise SystemExit(f"{done} of {JOBS} jobs were completed")
    return done / elapsed


async def _peer(python: Path, server: LocalPostgres, name: str, database: str) -> float:
    for attempt in range(TRIES):
        rate = await _peer_once(python, server, name, f"{database}_{attempt}")
        if rate is not None:
            return rate
    raise SystemExit(f"{name} failed {TRIES} times")


async def _peer_once(python: Path, server: LocalPostgres, name: str, database: str) -> float | None:
    admin = await asyncpg.connect(server.admin_dsn)
    try:
        await admin.execute(f'CREATE DATABASE "{database}"')
    finally:
        await admin.close()
    address, _, _ = server.admin_dsn.rpartition("/")
    process = await asyncio.create_subprocess_exec(
        str(python), str(Path(__file__).with_name("noop_peers.py")),
        name, f"{address}/{database}", str(JOBS), str(RUNNERS),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), timeout=180)
    if process.returncode != 0:
        # A worker of another queue may end at a deadlock of its own making: said, and tried again.
        reasons = [line.strip() for line in err.decode().splitlines() if "Error" in line or "deadlock" in line]
        print(f"  {name} ended early: {' | '.join(reasons)}")
        return None
    return float(out.split()[-1])


def _install_peers() -> Path:
    python = _PEERS_ENVIRONMENT / "bin" / "python"
    uv = _ROOT / ".venv" / "bin" / "uv"
    _PEERS_ENVIRONMENT.parent.mkdir(parents=True, exist_ok=True)
    commands = (
        [str(uv), "venv", "-q", "--allow-existing", "--python", sys.executable, str(_PEERS_ENVIRONMENT)],
        [str(uv), "pip", "sync", "-q", "--python", str(python), "--require-hashes",
         str(_ROOT / "requirements" / "bench.txt")],
    )  # fmt: skip
    for command in commands:
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit("the queues to compare with could not be installed")
    return python


_CLAIM: Final = "SELECT job_id FROM assets.claim_processing_job($1, $2, $3, $4)"
_RECORD: Final = """SELECT assets.record_processing_outcome($1, $2, $3, $4, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL)"""
_SEED: Final = """
WITH seeded AS (
    SELECT uuidv7() AS asset_id, uuidv7() AS upload_id, uuidv7() AS variant_id, uuidv7() AS job_id,
        ($1::uuid[])[1 + number % cardinality($1::uuid[])] AS organization_id,
        translate(substr(md5('d' || number), 1, 26), '0189', 'ghij') AS token,
        encode(sha256(convert_to(number::text, 'UTF8')), 'hex') AS hash
    FROM generate_series(1, $2::integer) AS series (number)
), made_assets AS (
    INSERT INTO assets.assets (id, organization_id, access_class, delivery_token, status)
    SELECT asset_id, organization_id, 'public', token, 'processing' FROM seeded
), made_variants AS (
    INSERT INTO assets.asset_variants (id, organization_id, asset_id, variant_code, status)
    SELECT variant_id, organization_id, asset_id, 'original', 'processing' FROM seeded
), made_uploads AS (
    INSERT INTO assets.uploads (id, organization_id, asset_id, staging_provider_id, staging_object_key,
        declared_media_type, declared_byte_size, state, expires_at, received_at, creation_idempotency_key,
        creation_request_hash)
    SELECT upload_id, organization_id, asset_id,
        (SELECT id FROM assets.storage_providers WHERE code = 's3-private'), 'in/' || token, 'image/jpeg', 1000,
        'received', now() + interval '15 minutes', now(), gen_random_uuid(), hash
    FROM seeded
), counted AS (
    UPDATE assets.organization_usage u SET active_asset_count = s.assets, reserved_bytes = s.assets * 1000
    FROM (SELECT organization_id, count(*) AS assets FROM seeded GROUP BY organization_id) AS s
    WHERE u.organization_id = s.organization_id
)
INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind)
SELECT job_id, organization_id, asset_id, 'process_upload' FROM seeded
"""

if __name__ == "__main__":
    uvloop.run(main())
