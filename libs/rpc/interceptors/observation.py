"""Duration and status of every call."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog
from opentelemetry.metrics import Histogram, Meter

from libs.rpc.interceptors.chain import Answer, Context, Interceptor, Stream

_SERVERS_FAULT = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "DATA_LOSS"})


class ObservationInterceptor(Interceptor):
    """Records `rpc.server.duration` (seconds) by method and status, and writes one line for each call.

    An answered call is written at DEBUG: the gateway writes each request, and the histogram counts all. A refusal is
    INFO, a failure of ours WARNING.
    """

    def __init__(self, meter: Meter) -> None:
        """Make the instrument."""
        self._duration: Histogram = meter.create_histogram(
            "rpc.server.duration", unit="s", description="Time from a call's arrival to its status"
        )
        self._log: Any = structlog.stdlib.get_logger("ninaku.rpc")
        self._writes_answers = logging.getLogger("ninaku.rpc").isEnabledFor

    def around_answer(self, method: str, inner: Answer, *, bounded: bool) -> Answer:
        """Measure the time until the handler returns."""

        async def answer(request: Any, context: Context) -> Any:
            started = time.perf_counter()
            try:
                result = await inner(request, context)
            except BaseException as error:
                self._observe(method, _status(context, error), time.perf_counter() - started)
                raise
            self._observe(method, _status(context, None), time.perf_counter() - started)
            return result

        return answer

    def around_stream(self, method: str, inner: Stream) -> Stream:
        """Measure the time until the stream ends."""

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            started = time.perf_counter()
            try:
                async for message in inner(request, context):
                    yield message
            except BaseException as error:
                self._observe(method, _status(context, error), time.perf_counter() - started)
                raise
            self._observe(method, _status(context, None), time.perf_counter() - started)

        return stream

    def _observe(self, method: str, status: str, seconds: float) -> None:
        self._duration.record(seconds, {"rpc.method": method, "rpc.grpc.status": status})
        if status == "OK":
            if self._writes_answers(logging.DEBUG):
                self._log.debug("rpc", method=method, status=status, milliseconds=round(seconds * 1000, 2))
            return
        write = self._log.warning if status in _SERVERS_FAULT else self._log.info
        write("rpc", method=method, status=status, milliseconds=round(seconds * 1000, 2))


def _status(context: Context, error: BaseException | None) -> str:
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    if error is None:
        return "OK"
    return "CANCELLED" if isinstance(error, (asyncio.CancelledError, GeneratorExit)) else "UNKNOWN"
