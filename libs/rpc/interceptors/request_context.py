"""Reads the metadata once and gives the call a request id."""

from collections.abc import AsyncIterator
from typing import Any

from structlog.contextvars import bind_contextvars

from libs.rpc.interceptors.chain import Answer, Context, Interceptor, Stream
from libs.rpc.metadata import REQUEST_ID, Call, enter_call, is_request_id, new_request_id


class RequestContextInterceptor(Interceptor):
    """Makes `current_call()` work and tells the caller, in the trailing metadata, which request id was kept.

    A caller's own id is kept only when it is well-formed: anything else would be echoed into headers and logs.
    """

    def around_answer(self, method: str, inner: Answer, *, bounded: bool) -> Answer:
        """Enter the call before awaiting the handler."""

        async def answer(request: Any, context: Context) -> Any:
            _enter(method, context)
            return await inner(request, context)

        return answer

    def around_stream(self, method: str, inner: Stream) -> Stream:
        """Enter the call before iterating the handler."""

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            _enter(method, context)
            async for message in inner(request, context):
                yield message

        return stream


def _enter(method: str, context: Context) -> None:
    metadata: dict[str, str | bytes] = {}
    for key, value in context.invocation_metadata() or ():
        # The first value counts: what a proxy or an attacker appends does not replace it.
        metadata.setdefault(key, value)
    offered = metadata.get(REQUEST_ID)
    request_id = offered if isinstance(offered, str) and is_request_id(offered) else new_request_id()
    context.set_trailing_metadata(((REQUEST_ID, request_id),))
    bind_contextvars(request_id=request_id)
    enter_call(Call(method, metadata, request_id))
