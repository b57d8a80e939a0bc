"""The order of the layers, as declared and as it happens; request ids; deadlines."""

import asyncio
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.metrics import NoOpMeter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from libs.errors.refusal import Refusal
from libs.errors.status import refusal_from_rpc_error
from libs.rpc.client import Channel
from libs.rpc.interceptors import ORDER
from libs.rpc.metadata import REQUEST_ID, current_call, current_traceparent, is_request_id, outgoing_metadata
from libs.rpc.server import RpcServer, ServerLimits, interceptor_layers
from tests.service.rpc.probe import METHODS, NAME, Probe, add_probe, ask, probed

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


async def answer_request_id(_context: Any) -> bytes:
    return current_call().request_id.encode()


def test_a_server_is_built_with_the_layers_in_the_declared_order() -> None:
    layers = interceptor_layers(NoOpMeter("test"), None, ServerLimits())

    assert tuple(type(layer) for layer in layers) == ORDER
    assert [layer.__name__ for layer in ORDER] == [
        "RequestContextInterceptor",
        "TracingInterceptor",
        "ObservationInterceptor",
        "DeadlineInterceptor",
        "FailureInterceptor",
    ]


@pytest.mark.parametrize("method", ["Unary", "Stream"])
async def test_measurement_and_trace_see_the_status_the_caller_sees(method: str) -> None:
    reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    server = RpcServer(
        "127.0.0.1",
        0,
        meter=MeterProvider(metric_readers=[reader]).get_meter("test"),
        tracer=provider.get_tracer("test"),
    )

    async def behaviour(_context: Any) -> bytes:
        raise Refusal("assets.not_found")

    server.add_service(add_probe, Probe(behaviour), NAME)
    port = await server.start()
    async with Channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(channel, method, metadata=(("traceparent", TRACEPARENT),))
    await server.stop(drain_seconds=1)

    data = reader.get_metrics_data()
    assert data is not None
    points = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert [dict(point.attributes or {}) for point in points] == [
        {"rpc.method": f"/{NAME}/{method}", "rpc.grpc.status": "NOT_FOUND"}
    ]
    (span,) = spans.get_finished_spans()
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.parent is not None
    assert span.attributes is not None
    assert span.attributes["rpc.grpc.status_code"] == 5
    assert span.events == (), "an exception's text must not be in a span"


@pytest.mark.parametrize("method", METHODS)
async def test_a_well_formed_request_id_is_kept_and_told(method: str) -> None:
    async with probed(answer_request_id) as channel:
        assert await ask(channel, method, metadata=outgoing_metadata("till-7.2026_11")) == b"till-7.2026_11"


@pytest.mark.parametrize("offered", ["", "a" * 65, "two words", "semi;colon", "<script>", "x/../y"])
async def test_a_malformed_request_id_is_replaced_and_never_echoed(offered: str) -> None:
    async with probed(answer_request_id) as channel:
        call = channel.unary_unary(f"/{NAME}/Unary")(b"", metadata=((REQUEST_ID, offered),))
        kept = (await call).decode()
        trailing: dict[str, Any] = dict(await call.trailing_metadata())

    assert kept != offered
    assert is_request_id(kept)
    assert trailing[REQUEST_ID] == kept


async def test_a_refused_call_tells_its_request_id_too() -> None:
    async def behaviour(_context: Any) -> bytes:
        raise Refusal("assets.not_found")

    async with probed(behaviour) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, metadata=outgoing_metadata("abc"))

    trailing: Any = caught.value.trailing_metadata()
    assert dict(trailing)[REQUEST_ID] == "abc"


async def test_of_repeated_metadata_the_first_value_counts() -> None:
    async def behaviour(_context: Any) -> bytes:
        return str(current_call().metadata["x-organization-id"]).encode()

    async with probed(behaviour) as channel:
        answered = await ask(channel, metadata=(("x-organization-id", "mine"), ("x-organization-id", "theirs")))

    assert answered == b"mine"


async def test_the_callers_trace_context_continues_without_any_exporter() -> None:
    async def behaviour(_context: Any) -> bytes:
        return (current_traceparent() or "none").encode()

    async with probed(behaviour) as channel:
        assert await ask(channel, metadata=(("traceparent", TRACEPARENT),)) == TRACEPARENT.encode()
        assert await ask(channel, metadata=(("traceparent", "00-nonsense-01"),)) == b"none"
        assert await ask(channel) == b"none"


def test_outgoing_metadata_carries_the_request_id_and_the_current_trace() -> None:
    context = trace.SpanContext(int(TRACE, 16), 0x00F067AA0BA902B7, True, trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert outgoing_metadata("abc", ("authorization", "Bearer x")) == (
            (REQUEST_ID, "abc"),
            ("authorization", "Bearer x"),
            ("traceparent", TRACEPARENT),
        )
    assert outgoing_metadata("abc") == ((REQUEST_ID, "abc"),)


@pytest.mark.parametrize("method", ["Unary", "Gather"])
async def test_a_call_without_a_deadline_gets_one_and_its_work_is_cancelled(method: str) -> None:
    cancelled = asyncio.Event()

    async def behaviour(_context: Any) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return b""

    server = RpcServer("127.0.0.1", 0, meter=NoOpMeter("test"), limits=ServerLimits(default_deadline_seconds=0.05))
    server.add_service(add_probe, Probe(behaviour), NAME)
    port = await server.start()
    # gRPC's own channel: ours always sends a deadline.
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, method)  # type: ignore[arg-type]
    await asyncio.wait_for(cancelled.wait(), 5)
    await server.stop(drain_seconds=0)

    assert refusal_from_rpc_error(caught.value).code == "foundation.deadline_exceeded"
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_callers_deadline_cancels_the_work() -> None:
    cancelled = asyncio.Event()

    async def behaviour(_context: Any) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return b""

    async with probed(behaviour) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, timeout=0.05)
        await asyncio.wait_for(cancelled.wait(), 5)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_deadline_longer_than_any_is_cut_to_the_longest() -> None:
    async def behaviour(_context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with probed(behaviour, ServerLimits(longest_deadline_seconds=0.05)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, timeout=3_600)

    assert refusal_from_rpc_error(caught.value).code == "foundation.deadline_exceeded"
