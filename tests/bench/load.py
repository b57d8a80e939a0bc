"""A small closed-loop HTTP/1.1 load generator: N keep-alive connections, one request in flight on each.

It runs on the same cores as what it measures, so that its own cost is the same for every candidate of a run.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class Load:
    """What one round measured."""

    requests: int
    """Requests answered."""
    seconds: float
    """Wall time of the round."""
    failures: int
    """Answers whose status was not the expected one."""

    @property
    def per_second(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


class _Connection(asyncio.Protocol):
    def __init__(self, request: bytes, expected_status: bytes) -> None:
        self._request = request
        self._expected = expected_status
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._stopping = False
        self.answered = 0
        self.failed = 0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        lower = head.lower()
        start = lower.find(b"content-length:")
        length = int(lower[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self.answered += 1
        if head[9:12] != self._expected:
            self.failed += 1
        assert self._transport is not None
        if self._stopping:
            self._transport.close()
        else:
            self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._stopping:
            self.failed += 1
        if not self.closed.done():
            self.closed.set_result(None)

    def stop(self) -> None:
        self._stopping = True


async def run(
    port: int, path: str, headers: dict[str, str], *, connections: int = 32, seconds: float = 4.0, expected: int = 200
) -> Load:
    """Ask for one path from ``connections`` keep-alive connections for a while.

    Args:
        port: Loopback port.
        path: Path to GET.
        headers: Request headers.
        connections: Requests in flight.
        seconds: How long to keep asking.
        expected: The status every answer must have; others are counted as failures.
    """
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    request = ("\r\n".join(lines) + "\r\n\r\n").encode()
    loop = asyncio.get_running_loop()
    opened: list[_Connection] = []
    started = time.perf_counter()
    for _ in range(connections):
        _, protocol = await loop.create_connection(
            lambda: _Connection(request, str(expected).encode()), "127.0.0.1", port
        )
        opened.append(protocol)
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - started
    answered = sum(connection.answered for connection in opened)
    for connection in opened:
        connection.stop()
    await asyncio.wait([connection.closed for connection in opened], timeout=10)
    return Load(answered, elapsed, sum(connection.failed for connection in opened))
