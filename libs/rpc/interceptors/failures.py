"""The one place where an exception becomes a status (DESIGN D4)."""

from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import structlog

from libs.errors.refusal import FieldViolation, Refusal, invalid
from libs.errors.status import to_grpc_status
from libs.rpc.interceptors.chain import Answer, Context, Interceptor, Stream, UnreadableRequest


class FailureInterceptor(Interceptor):
    """A refusal travels with its code; anything unknown becomes INTERNAL with a fixed text.

    Without it `grpc.aio` sends the exception's own text to the caller, secrets included. The cause is written to the
    log and nowhere else. A cancelled handler stays cancelled.
    """

    def __init__(self) -> None:
        """Take a logger."""
        self._log: Any = structlog.stdlib.get_logger("ninaku.rpc")

    def around_answer(self, method: str, inner: Answer, *, bounded: bool) -> Answer:
        """Map what the awaited handler raises."""

        async def answer(request: Any, context: Context) -> Any:
            try:
                _require_readable(request)
                return await inner(request, context)
            except Exception as error:
                await self._end(method, context, error)

        return answer

    def around_stream(self, method: str, inner: Stream) -> Stream:
        """Map what the iterated handler raises."""

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            try:
                _require_readable(request)
                async for message in inner(request, context):
                    yield message
            except Exception as error:
                await self._end(method, context, error)

        return stream

    async def _end(self, method: str, context: Context, error: Exception) -> NoReturn:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, Refusal):
            await refuse(context, error)
        self._log.error("rpc failed", method=method, exc_info=error)
        await refuse(context, Refusal("foundation.internal"))


def _require_readable(request: Any) -> None:
    if isinstance(request, UnreadableRequest):
        raise invalid(FieldViolation("request", "It cannot be read as a message of this method."))


async def refuse(context: Context, refusal: Refusal) -> NoReturn:
    """End the call with the refusal's status and details; trailing metadata set so far is kept."""
    status = to_grpc_status(refusal)
    await context.abort(
        status.code, status.details, (*(context.trailing_metadata() or ()), *(status.trailing_metadata or ()))
    )
    raise AssertionError("abort returns only by raising")
