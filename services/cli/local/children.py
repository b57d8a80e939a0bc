"""Child processes that speak under their name, come back after a crash, and never outlive the command line."""

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: a child between fork and exec loads nothing
_DRAIN_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 15.0
_STEADY_SECONDS: Final = 30.0
_LINE_LIMIT: Final = 2**20


def die_with_parent(with_signal: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """For `preexec_fn`: the kernel sends `with_signal` to the child when the thread that started it is gone.

    Without it a `kill -9` of the command line would leave every service running on its port.
    """
    parent = os.getpid()

    def arrange() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(with_signal), 0, 0, 0)
        if os.getppid() != parent:  # the parent died in between: nobody would ever send the signal
            os._exit(1)

    return arrange


def leave_with_parent() -> None:
    """Asks the kernel for SIGTERM when the process that started this one is gone."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


@dataclass(frozen=True)
class ChildProcess:
    """What to start: `ready` waits until it serves, and raises TimeoutError when it does not."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    ready: Callable[[], Awaitable[None]]


class StartFailed(Exception):
    """A child did not come up. The message names it; its own words are in the log above."""


class Supervisor:
    """Runs children. `say` prints a line under a name: a child's own output, or what happened to it."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._ending = False

    async def start(self, children: Sequence[ChildProcess]) -> None:
        """Starts all at once and returns when each is ready. Raises StartFailed when one is not; ends none."""
        async with asyncio.TaskGroup() as group:
            for child in children:
                group.create_task(self._bring_up(child))
        self._watchers += [asyncio.create_task(self._watch(child), name=f"watch {child.name}") for child in children]

    async def stop(self) -> None:
        """Ends every child: a request first, `kill` for what is still there after two seconds."""
        self._ending = True
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers.clear()
        await asyncio.gather(*(self._end(process) for process in self._processes.values()))
        self._processes.clear()

    def process_id(self, name: str) -> int | None:
        """The process id of a child that runs."""
        process = self._processes.get(name)
        return process.pid if process is not None and process.returncode is None else None

    async def _bring_up(self, child: ChildProcess) -> None:
        process = await self._spawn(child)
        ready = asyncio.ensure_future(child.ready())
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise StartFailed(f"{child.name} ended with status {process.returncode} while it was starting")
            try:
                ready.result()
            except TimeoutError:
                raise StartFailed(f"{child.name} started but does not answer") from None
        finally:
            for waiting in (ready, ended):
                waiting.cancel()

    async def _spawn(self, child: ChildProcess) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *child.arguments,
            cwd=child.folder,
            env=dict(child.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_LINE_LIMIT,
            start_new_session=True,  # Ctrl-C reaches the command line only, which then ends the children in order
            preexec_fn=die_with_parent(),
        )
        self._processes[child.name] = process
        asyncio.create_task(self._relay(child.name, process), name=f"relay {child.name}")  # noqa: RUF006  ends with the pipe
        return process

    async def _relay(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # a line longer than the limit was dropped
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            if text:
                self._say(name, text)

    async def _watch(self, child: ChildProcess) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            process = self._processes[child.name]
            started = time.monotonic()
            status = await process.wait()
            if self._ending:
                return
            pause = _FIRST_PAUSE_SECONDS if time.monotonic() - started > _STEADY_SECONDS else pause
            self._say(child.name, f"{_ending(status)}; starting it again in {pause:.1f} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            try:
                await self._bring_up(child)
                self._say(child.name, "is back")
            except StartFailed as failure:
                self._say(child.name, str(failure))

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _DRAIN_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _ending(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
