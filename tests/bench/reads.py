"""``GET /api/v1/assets/{id}`` at 32 concurrent: gateway → library → one SQL function, beside one FastAPI process.

Target (DESIGN §7): at least 0.85 of the requests per second of the peer that issues the seven statements itself.
Run as ``python -m tests.bench.reads``; prints the ratio of every round and its median.
"""

import asyncio
import os
import secrets
import socket
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import uvloop

from database import migrate
from libs.assets.rendition_profile import PROFILE_1, RENDITIONS
from libs.assets.tokens import generate_delivery_token
from libs.tenancy.callers import hash_session_token
from services.cli.local.postgres import LocalPostgres
from tests.bench import load

PUBLIC_BASE = "https://media.example.com"
ROUNDS = 5
SECONDS = 4.0
CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked for, and as whom."""

    path: str
    headers: dict[str, str]


async def main() -> None:
    """Measure and print."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ninaku-bench-")))
        folder.chmod(0o711)
        server = await stack.enter_async_context(
            LocalPostgres(folder / "postgres", durable=False, die_with_parent=True)
        )
        passwords = {login: secrets.token_hex(8) for login in migrate.LOGINS}
        await migrate.create(server.admin_dsn, "ninaku", passwords)

        def dsn(login: str) -> str:
            return server.dsn(login, passwords[login], "ninaku")

        subject = await _seed(dsn(migrate.MIGRATOR))
        library, gateway, peer = _free_port(), _free_port(), _free_port()
        for arguments, environment, port in (
            (
                ("services.library.main",),
                {
                    "DATABASE_URL": dsn("ninaku_library"),
                    "NINAKU_LISTEN": f"127.0.0.1:{library}",
                    "ASSETS_PUBLIC_BASE_URL": PUBLIC_BASE,
                },
                library,
            ),
            (
                ("services.gateway.main",),
                {
                    "NINAKU_LISTEN": f"127.0.0.1:{gateway}",
                    "NINAKU_LIBRARY_ADDRESS": f"127.0.0.1:{library}",
                    "NINAKU_ADMISSION_ADDRESS": "127.0.0.1:9",
                    "NINAKU_DELIVERY_ADDRESS": "127.0.0.1:9",
                },
                gateway,
            ),
            (("tests.bench.peer_reads", str(peer), dsn(migrate.MIGRATOR)), {}, peer),
        ):
            await stack.enter_async_context(_process(arguments, environment, port))
        await _compare(subject, gateway, peer)


async def _compare(subject: Subject, gateway: int, peer: int) -> None:
    for port in (gateway, peer):
        await load.run(port, subject.path, subject.headers, connections=CONNECTIONS, seconds=1.5)
    rounds: list[tuple[load.Load, load.Load]] = []
    for number in range(ROUNDS):
        order = (gateway, peer) if number % 2 == 0 else (peer, gateway)
        measured = {
            port: await load.run(port, subject.path, subject.headers, connections=CONNECTIONS, seconds=SECONDS)
            for port in order
        }
        ours, theirs = measured[gateway], measured[peer]
        if ours.failures or theirs.failures:
            raise SystemExit(f"answers other than 200: ours {ours.failures}, the peer's {theirs.failures}")
        rounds.append((ours, theirs))
        print(
            f"  gateway {ours.per_second:7.0f}/s   peer {theirs.per_second:7.0f}/s   ratio {_ratio(ours, theirs):.2f}"
        )
    median = statistics.median(_ratio(ours, theirs) for ours, theirs in rounds)
    print(f"GET /assets/{{id}} at {CONNECTIONS} concurrent: {median:.2f} of the peer (target 0.85 or more)")


def _ratio(ours: load.Load, theirs: load.Load) -> float:
    return ours.per_second / theirs.per_second


async def _seed(dsn: str) -> Subject:
    connection = await asyncpg.connect(dsn)
    try:
        organization = await connection.fetchval("SELECT identity.create_organization($1)", "Bench")
        await connection.fetchrow(
            "SELECT * FROM identity.add_member($1, $2, $3, $4)",
            organization, "owner@example.com", "Owner", "organization_owner",
        )  # fmt: skip
        token = secrets.token_urlsafe(32)
        await connection.fetchval(
            "SELECT identity.create_session($1, $2)", "owner@example.com", hash_session_token(token)
        )
        asset = uuid.uuid4()
        codes = ["original", *(one.code for one in RENDITIONS[PROFILE_1])]
        async with connection.transaction():
            await connection.execute(
                """INSERT INTO assets.assets (id, organization_id, access_class, display_name, original_filename,
                       delivery_token, status, ready_at)
                   VALUES ($1, $2, 'public', 'Hamburguesa clásica', 'IMG_4711.jpeg', $3, 'ready', now())""",
                asset, organization, generate_delivery_token(),
            )  # fmt: skip
            await connection.executemany(
                """INSERT INTO assets.asset_variants (id, organization_id, asset_id, variant_code, status, media_type,
                       byte_size, checksum_sha256, width, height, ready_at)
                   VALUES ($1, $2, $3, $4, 'ready', 'image/webp', 123456, $5, 4000, 3000, now())""",
                [(uuid.uuid4(), organization, asset, code, secrets.token_bytes(32)) for code in codes],
            )
        return Subject(
            f"/api/v1/assets/{asset}", {"Authorization": f"Bearer {token}", "X-Organization-Id": str(organization)}
        )
    finally:
        await connection.close()


@asynccontextmanager
async def _process(arguments: tuple[str, ...], environment: Mapping[str, str], port: int) -> AsyncIterator[None]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, env=inherited | {"NINAKU_LOG_LEVEL": "WARNING"} | dict(environment)
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.returncode is not None or time.monotonic() > deadline:
                raise SystemExit(f"{arguments[0]} did not start")
            await asyncio.sleep(0.05)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    uvloop.run(main())
