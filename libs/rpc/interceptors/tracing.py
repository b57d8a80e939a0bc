"""Continues the caller's trace."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from libs.rpc.interceptors.chain import Answer, Context, Interceptor, Stream
from libs.rpc.metadata import TRACEPARENT, TRACESTATE, current_call


class TracingInterceptor(Interceptor):
    """Opens the server's span under the span that the metadata names.

    Args:
        tracer: Makes the spans; with None nothing is exported, and the caller's context is only carried on.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        """Keep the tracer."""
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    def around_answer(self, method: str, inner: Answer, *, bounded: bool) -> Answer:
        """Await the handler inside the span."""
        tracer = self._tracer

        async def answer(request: Any, context: Context) -> Any:
            if tracer is None and TRACEPARENT not in current_call().metadata:
                return await inner(request, context)
            with self._span(tracer, method, context):
                return await inner(request, context)

        return answer

    def around_stream(self, method: str, inner: Stream) -> Stream:
        """Iterate the handler inside the span."""

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            with self._span(self._tracer, method, context):
                async for message in inner(request, context):
                    yield message

        return stream

    @contextmanager
    def _span(self, tracer: trace.Tracer | None, method: str, context: Context) -> Iterator[None]:
        metadata = current_call().metadata
        # Exactly these two: W3C baggage is not taken from a caller.
        carrier = {key: str(metadata[key]) for key in (TRACEPARENT, TRACESTATE) if key in metadata}
        parent = self._propagator.extract(carrier)
        if tracer is None:
            token = otel_context.attach(parent)
            try:
                yield
            finally:
                otel_context.detach(token)
            return
        service, _, name = method.rpartition("/")
        # Exceptions are not recorded: their text can hold what must not leave the log.
        with tracer.start_as_current_span(
            method.lstrip("/"),
            context=parent,
            kind=trace.SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service.lstrip("/"), "rpc.method": name},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            finally:
                code = context.code()
                if code:
                    span.set_attribute("rpc.grpc.status_code", getattr(code, "value", (code,))[0])
                    span.set_status(trace.StatusCode.ERROR)
