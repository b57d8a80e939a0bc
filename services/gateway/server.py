"""The HTTP server: uvicorn with bounds on what it takes before a route is known."""

import asyncio
import contextlib
import signal
from collections.abc import Generator
from typing import Any, Final

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from libs.errors.refusal import Refusal
from services.gateway.exchange import Answer
from services.gateway.failures import failure_answer
from services.gateway.health_routes import Readiness

MOST_HEAD_BYTES: Final = 16 * 1024
"""Address and headers together."""
HEAD_SECONDS: Final = 15.0
"""A connection that has sent no whole request head by then is closed."""
_KEEP_ALIVE_SECONDS: Final = 75  # longer than the usual idle time of a load balancer, so that it closes first
_DRAIN_SECONDS: Final = 20


class BoundedHttpProtocol(HttpToolsProtocol):
    """Bounds the head of a request, which the parser itself does not, and answers its refusals as JSON."""

    _head_bytes = 0
    _head_complete = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first head."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Count anew for each request of the connection."""
        super().on_message_begin()
        self._head_bytes = 0
        self._head_complete = False
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_url(self, url: bytes) -> None:
        """Count the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; count a trailer and drop it, for it must not pass as a header (RFC 9110 §6.5)."""
        self._count(len(name) + len(value))
        if not self._head_complete:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop waiting: the head is there."""
        self._head_complete = True
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or too much of it, and close."""
        if self.transport.is_closing():
            return
        code = "foundation.headers_too_large" if self._head_bytes > MOST_HEAD_BYTES else "foundation.malformed_request"
        self.transport.write(_raw(failure_answer(Refusal(code))))
        self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MOST_HEAD_BYTES:
            # The parser turns this into the error that data_received answers with send_400_response.
            raise ValueError("the head is too large")

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        self.transport.close()


class HttpServer(uvicorn.Server):
    """Serves until SIGTERM or SIGINT, then answers what is running and ends.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port, or 0 for a free one.
        readiness: Turned on once listening, off when draining begins.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, readiness: Readiness) -> None:
        """Configure; nothing listens yet."""
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=BoundedHttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )
        self._readiness = readiness
        self._log: Any = structlog.stdlib.get_logger("ninaku.http")

    @property
    def port(self) -> int:
        """The port that is listened on."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._readiness.ready = True
            self._log.info("listening", address=f"{self.config.host}:{self.port}")

    def request_stop(self) -> None:
        """Drain and end, as a signal does."""
        self._readiness.ready = False
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Take the signals through the loop; unlike the inherited way, ending by one is an orderly exit."""
        loop = asyncio.get_running_loop()
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.request_stop)
        except (ValueError, RuntimeError):
            # Not the main thread: whoever runs the server there stops it with request_stop.
            yield
            return
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def _raw(answer: Answer) -> bytes:
    head = [STATUS_LINE[answer.status]]
    head.extend(name + b": " + value + b"\r\n" for name, value in answer.headers)
    head.append(b"content-length: " + str(len(answer.body)).encode("ascii") + b"\r\nconnection: close\r\n\r\n")
    return b"".join(head) + answer.body
