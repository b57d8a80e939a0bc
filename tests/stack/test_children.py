"""Children speak under their name, come back after a crash, and never outlive their parent."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from services.cli.local.children import ChildProcess, StartFailed, Supervisor


def child(name: str, code: str, folder: Path, ready: Callable[[], Awaitable[None]] | None = None) -> ChildProcess:
    async def at_once() -> None:
        pass

    return ChildProcess(
        name, (sys.executable, "-c", textwrap.dedent(code)), {"PYTHONUNBUFFERED": "1"}, folder, ready or at_once
    )


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_every_line_of_a_child_is_said_under_its_name(tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    supervisor = Supervisor(lambda name, line: said.append((name, line)))
    code = "import sys, time; print('hello'); print('trouble', file=sys.stderr); time.sleep(60)"
    await supervisor.start([child("one", code, tmp_path)])
    try:
        await eventually(lambda: len(said) == 2)
    finally:
        await supervisor.stop()
    assert sorted(said) == [("one", "hello"), ("one", "trouble")]


async def test_a_child_that_is_killed_is_said_and_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(lambda _, line: said.append(line))
    await supervisor.start([child("one", "import time; time.sleep(60)", tmp_path)])
    try:
        first = supervisor.process_id("one")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: supervisor.process_id("one") not in {None, first})
        await eventually(lambda: "is back" in said)
    finally:
        await supervisor.stop()
    assert any("SIGKILL" in line for line in said)


async def test_a_child_that_ends_while_starting_is_reported_with_its_status(tmp_path: Path) -> None:
    async def never() -> None:
        await asyncio.sleep(3600)

    supervisor = Supervisor(lambda _name, _line: None)
    with pytest.raises(ExceptionGroup) as raised:
        await supervisor.start([child("one", "raise SystemExit(7)", tmp_path, never)])
    await supervisor.stop()
    assert raised.group_contains(StartFailed, match="one ended with status 7")


async def test_a_child_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(lambda _, line: said.append(line))
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(600)"
    await supervisor.start([child("one", code, tmp_path)])
    await eventually(lambda: "deaf" in said)
    pid = supervisor.process_id("one")
    assert pid is not None
    await supervisor.stop()
    assert not is_alive(pid)


async def test_children_end_when_the_command_line_is_killed(tmp_path: Path) -> None:
    parent_code = """
        import asyncio, pathlib, sys
        from services.cli.local.children import ChildProcess, Supervisor

        async def at_once():
            pass

        async def main():
            supervisor = Supervisor(lambda name, line: print(line, flush=True))
            code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
            await supervisor.start([ChildProcess("one", (sys.executable, "-c", code), {}, pathlib.Path("/"), at_once)])
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent_code)],
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    await eventually(lambda: not is_alive(pid))
    parent.stdout.close()
