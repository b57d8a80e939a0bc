"""Wakes the loop when a job is queued: one direct connection that listens, and never a word that it has to trust."""

import asyncio
import contextlib
from typing import Any, Final

import asyncpg
import structlog

CHANNEL: Final = "assets_processing_jobs"
_CONNECT_TIMEOUT_SECONDS: Final = 5.0
_RECONNECT_FIRST_SECONDS: Final = 0.2
_RECONNECT_CAP_SECONDS: Final = 5.0


class Wakeups:
    """Whether something happened since it was last forgotten."""

    def __init__(self) -> None:
        """Start awake: whatever was queued before is there to be claimed."""
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._event.set()

    def forget(self) -> None:
        """Count only what happens from now on; call it before looking, so that nothing falls between."""
        self._event.clear()

    async def wait(self, seconds: float, stopping: asyncio.Event) -> None:
        """Return after `seconds`, or as soon as something wakes or stops us."""
        waiters = {asyncio.create_task(self._event.wait()), asyncio.create_task(stopping.wait())}
        try:
            await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
            await asyncio.wait(waiters)


class JobListener:
    """Keeps one connection on the channel for as long as it runs, and wakes after every (re)connect.

    The connection must reach PostgreSQL itself: behind a transaction pooler LISTEN is lost. While there is none, the
    loop's poll interval does the waking.
    """

    def __init__(self, url: str, application_name: str, wakeups: Wakeups) -> None:
        """`url` is ``postgresql://...``; nothing connects before `run`."""
        self._url = url
        self._application_name = application_name
        self._wakeups = wakeups
        self._log: Any = structlog.stdlib.get_logger("ninaku.processing")

    async def run(self, stopping: asyncio.Event) -> None:
        """Listen until `stopping` is set, connecting again whenever the connection ends."""
        pause = _RECONNECT_FIRST_SECONDS
        while not stopping.is_set():
            try:
                await self._listen(stopping)
                pause = _RECONNECT_FIRST_SECONDS
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self._log.warning("not listening for jobs", error=type(error).__name__)
                pause = min(pause * 2, _RECONNECT_CAP_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause)

    async def _listen(self, stopping: asyncio.Event) -> None:
        lost = asyncio.Event()
        connection = await asyncpg.connect(
            self._url,
            timeout=_CONNECT_TIMEOUT_SECONDS,
            server_settings={"application_name": f"{self._application_name} listener"},
        )
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, lambda *_: self._wakeups.wake())
            # What was queued while nobody listened announced itself to nobody.
            self._wakeups.wake()
            waiters = {asyncio.create_task(lost.wait()), asyncio.create_task(stopping.wait())}
            try:
                await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waiter in waiters:
                    waiter.cancel()
                await asyncio.wait(waiters)
        finally:
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connection.close(timeout=1.0)
