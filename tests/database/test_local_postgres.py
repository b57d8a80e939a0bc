"""The local PostgreSQL: where it lives, as whom it runs, and what it says when it cannot."""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from services.cli.local.postgres import LocalPostgres, PostgresUnavailable, runtime_folder

PROJECT = Path(__file__).resolve().parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give the server to another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter: pytest's own is the caller's alone."""
    made = Path(tempfile.mkdtemp(prefix="ninaku-postgres-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def local(folder: Path, port: int = 0) -> LocalPostgres:
    return LocalPostgres(folder / "data", port, durable=False, die_with_parent=True, project_dir=folder)


async def answer(server: LocalPostgres, statement: str) -> object:
    connection = await asyncpg.connect(server.admin_dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def server_of(server: LocalPostgres) -> int:
    assert server.pid is not None
    return server.pid


async def test_keeps_data_and_password_between_runs_and_ends_with_its_owner(folder: Path) -> None:
    async with local(folder) as server:
        assert "PostgreSQL 18" in str(await answer(server, "SELECT version()"))
        await answer(server, "CREATE TABLE kept (id integer)")
        first_dsn, pid, port = server.admin_dsn, server_of(server), server.port
    assert not Path(f"/proc/{pid}").exists()
    async with local(folder, port) as server:
        assert server.admin_dsn == first_dsn
        assert await answer(server, "SELECT count(*) FROM kept") == 0


async def test_lets_nobody_in_without_a_password_and_listens_on_loopback_only(folder: Path) -> None:
    async with local(folder) as server:
        for user, password in (("postgres", "wrong"), ("postgres", ""), ("nobody", "x")):
            with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
                await asyncpg.connect(server.dsn(user, password, "postgres"))
        assert await answer(server, "SHOW listen_addresses") == "127.0.0.1"
        assert await answer(server, "SHOW unix_socket_directories") == ""
        kept = next(folder.glob("**/superuser.password"))
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@as_root
async def test_started_by_root_it_runs_as_an_unprivileged_user(folder: Path) -> None:
    async with local(folder) as server:
        assert Path(f"/proc/{server_of(server)}").stat().st_uid == pwd.getpwnam("nobody").pw_uid


@as_root
async def test_moves_where_its_user_can_reach_when_the_project_lies_in_a_closed_folder(folder: Path) -> None:
    folder.chmod(0o700)
    server = local(folder)
    relocated = runtime_folder(folder)
    try:
        await server.start()
        await answer(server, "CREATE TABLE kept (id integer)")
        await server.stop()
        assert not (folder / "data" / "data").exists()
        assert relocated.name.startswith("ninaku-0-")
        assert stat.S_IMODE(relocated.stat().st_mode) == 0o711
        again = local(folder)
        await again.start()
        assert await answer(again, "SELECT count(*) FROM kept") == 0
        await again.stop()
        again.remove()
        assert not list(relocated.glob("data-*"))
    finally:
        await server.stop()
        shutil.rmtree(relocated, ignore_errors=True)


@as_root
async def test_copies_the_binaries_when_its_user_cannot_reach_the_installed_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.cli.local import postgres

    installed = postgres._installed_binaries()
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    site_packages, package = installed.parents[1], installed.parent.name
    moved = closed / package / installed.name
    shutil.copytree(installed, moved, ignore=shutil.ignore_patterns("include", "*.a"))
    shutil.copytree(site_packages / f"{package}.libs", closed / f"{package}.libs")
    monkeypatch.setattr(postgres, "_installed_binaries", lambda: moved)
    relocated = runtime_folder(folder)
    try:
        async with local(folder) as server:
            running = Path(f"/proc/{server_of(server)}/exe").resolve()
            assert running.is_relative_to(relocated)
            assert "PostgreSQL 18" in str(await answer(server, "SELECT version()"))
    finally:
        shutil.rmtree(relocated, ignore_errors=True)


@as_root
async def test_refuses_a_runtime_folder_that_somebody_else_made_first(folder: Path) -> None:
    folder.chmod(0o700)
    trap = runtime_folder(folder)
    trap.mkdir()
    nobody = pwd.getpwnam("nobody")
    os.chown(trap, nobody.pw_uid, nobody.pw_gid)
    try:
        with pytest.raises(PostgresUnavailable, match="belongs to somebody else"):
            await local(folder).start()
    finally:
        trap.rmdir()


_AS_SOMEBODY = """
import asyncio, concurrent.futures.thread, encodings.idna, os, pwd, sys
from pathlib import Path
from services.cli.local.postgres import LocalPostgres
import asyncpg

async def main():
    # The interpreter may lie where only root can read it: everything is loaded before the privileges are dropped.
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
    async with LocalPostgres(Path(sys.argv[1]), durable=False, project_dir=Path(sys.argv[1])) as server:
        connection = await asyncpg.connect(server.admin_dsn)
        print(await connection.fetchval("SELECT 'answered'"))
        await connection.close()

asyncio.run(main())
"""


@as_root
async def test_runs_for_an_ordinary_user_inside_that_users_own_closed_folder(folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _AS_SOMEBODY, str(home / "state")],
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (home / "state" / "data").stat().st_uid == nobody.pw_uid
    assert ran.stdout.strip() == "answered", ran.stderr


async def test_says_that_its_port_is_taken_and_what_to_do(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            PostgresUnavailable, match=rf"port {port} .* is taken: stop what uses it, or choose another"
        ):
            await local(folder, port).start()
    async with local(folder, port) as server:  # and is not left locked by the attempt
        assert server.port == port


async def test_refuses_to_run_the_same_data_twice(folder: Path) -> None:
    async with local(folder) as server:
        with pytest.raises(PostgresUnavailable, match="already running"):
            await local(folder).start()
        with pytest.raises(PostgresUnavailable, match="stop this PostgreSQL"):
            server.remove()
        assert await answer(server, "SELECT 1") == 1


_LEAVES_IT_BEHIND = """
import asyncio, os, signal, sys
from pathlib import Path
from services.cli.local.postgres import LocalPostgres

async def main():
    server = LocalPostgres(Path(sys.argv[1]), durable=False, project_dir=Path(sys.argv[1]).parent)
    await server.start()
    print(server.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_ends_the_server_that_a_killed_run_left_behind(folder: Path) -> None:
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _LEAVES_IT_BEHIND, str(folder / "data")],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = int(killed.stdout)
    assert Path(f"/proc/{left}").exists()
    async with local(folder) as server:
        assert server_of(server) != left
        assert not Path(f"/proc/{left}").exists() or "Z" in Path(f"/proc/{left}/stat").read_text().split(") ")[1][:1]
        assert await answer(server, "SELECT 1") == 1


async def test_starts_over_after_a_first_run_that_was_interrupted(folder: Path) -> None:
    broken = folder / "data" / "data"
    broken.mkdir(parents=True, mode=0o700)
    (broken / "PG_VERSION").write_text("18\n")
    if os.geteuid() == 0:
        os.chown(broken, pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_gid)
    async with local(folder) as server:
        assert await answer(server, "SELECT 1") == 1


async def test_committed_data_survives_a_kill(folder: Path) -> None:
    server = local(folder)
    await server.start()
    await answer(server, "CREATE TABLE kept AS SELECT generate_series(1, 1000)")
    os.kill(server_of(server), signal.SIGKILL)
    await server.stop()
    async with local(folder) as again:
        assert await answer(again, "SELECT count(*) FROM kept") == 1000
