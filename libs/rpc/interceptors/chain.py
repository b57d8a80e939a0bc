"""Wraps the handler of each method once, whatever its shape.

In `grpc.aio` an interceptor that puts try/except around `continuation()` catches nothing: it returns the handler and
not its result. So each interceptor here wraps the handler itself, one way for answers and one for streams of answers.
The result is kept per method: a call pays for nested coroutines only.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import grpc

Context = Any  # grpc.aio.ServicerContext of our own request and response types
Answer = Callable[[Any, Context], Awaitable[Any]]
"""A handler that is awaited: one answer, or none when it writes a stream itself."""
Stream = Callable[[Any, Context], AsyncIterator[Any]]
"""A handler that is iterated: a stream of answers."""


class UnreadableRequest:
    """Stands in for a request whose bytes are no message of the method's type, so that the layers see the call.

    What a deserializer raises would otherwise pass all of them: gRPC answers UNKNOWN with the exception's own words.
    """


class Interceptor(Protocol):
    """One layer around handlers. The first argument of a handler is a request, or an iterator of requests."""

    def around_answer(self, method: str, inner: Answer, *, bounded: bool) -> Answer:
        """Wrap a handler that is awaited; `bounded` is false for one that writes a stream."""
        ...

    def around_stream(self, method: str, inner: Stream) -> Stream:
        """Wrap a handler that is iterated."""
        ...


if TYPE_CHECKING:
    _ServerInterceptor = grpc.aio.ServerInterceptor[Any, Any]  # generic in the type stubs only
    Handler = grpc.RpcMethodHandler[Any, Any]
else:
    _ServerInterceptor = grpc.aio.ServerInterceptor
    Handler = grpc.RpcMethodHandler


class InterceptorChain(_ServerInterceptor):
    """The layers as one gRPC interceptor.

    Args:
        layers: Outermost first.
    """

    def __init__(self, layers: Sequence[Interceptor]) -> None:
        """Keep the layers."""
        self._layers = tuple(layers)
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the method's handler with all layers around it; for a method that nobody serves, None as given."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None  # type: ignore[return-value]  # what gRPC itself gives and takes for an unknown method
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            # Only methods that are served come here, so the mapping is as small as the services are.
            known = (handler, self._wrap(method, handler))
            self._wrapped[method] = known
        return known[1]

    def _wrap(self, method: str, handler: Any) -> Handler:
        for shape, streams, build in (
            ("unary_unary", False, grpc.unary_unary_rpc_method_handler),
            ("unary_stream", True, grpc.unary_stream_rpc_method_handler),
            ("stream_unary", False, grpc.stream_unary_rpc_method_handler),
            ("stream_stream", True, grpc.stream_stream_rpc_method_handler),
        ):
            behaviour = getattr(handler, shape)
            if behaviour is not None:
                return build(
                    self._surround(method, behaviour, streams=streams),
                    request_deserializer=_never_raising(handler.request_deserializer),
                    response_serializer=handler.response_serializer,
                )
        raise TypeError(f"{method} has no handler")

    def _surround(self, method: str, behaviour: Any, *, streams: bool) -> Any:
        if inspect.isasyncgenfunction(behaviour):
            stream: Stream = behaviour
            for layer in reversed(self._layers):
                stream = layer.around_stream(method, stream)
            return stream
        # Every handler of ours is async; a synchronous one is the generated placeholder of a method not implemented.
        answer: Answer = behaviour if inspect.iscoroutinefunction(behaviour) else _unimplemented
        for layer in reversed(self._layers):
            answer = layer.around_answer(method, answer, bounded=not streams)
        return answer


async def _unimplemented(_request: Any, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "The method is not implemented.")


def _never_raising(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception:
            return UnreadableRequest()

    return read
