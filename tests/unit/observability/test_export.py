"""Spans and metrics of a process, at a real OTLP/gRPC collector. Providers are set once a process: each is new."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

PROCESS = """
import sys
from opentelemetry import baggage, context, propagate, trace
from libs.observability.metrics import configure_metrics, context_meter
from libs.observability.tracing import configure_tracing

endpoint = sys.argv[1] or None
stop_tracing = configure_tracing("ninaku-library", endpoint)
stop_metrics = configure_metrics("ninaku-library", endpoint)
context_meter("library").create_counter("reads").add(3)
with trace.get_tracer("test").start_as_current_span("reading"):
    context.attach(baggage.set_baggage("secret", "hidden"))
    carrier = {}
    propagate.inject(carrier)
    print(sorted(carrier))
stop_tracing()
stop_metrics()
"""


class _Collector(trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self) -> None:
        self.spans: list[tuple[str, str]] = []
        self.metrics: list[tuple[str, str]] = []

    @staticmethod
    def _service(resource: Any) -> str:
        return str({pair.key: pair.value.string_value for pair in resource.attributes}["service.name"])

    async def Export(self, request: Any, context: Any) -> Any:
        if isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
            for batch in request.resource_spans:
                for scope in batch.scope_spans:
                    self.spans += [(self._service(batch.resource), span.name) for span in scope.spans]
            return trace_service_pb2.ExportTraceServiceResponse()
        for group in request.resource_metrics:
            for measured in group.scope_metrics:
                self.metrics += [(measured.scope.name, metric.name) for metric in measured.metrics]
        return metrics_service_pb2.ExportMetricsServiceResponse()


@asynccontextmanager
async def a_collector() -> AsyncIterator[tuple[_Collector, str]]:
    collector, server = _Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def run(endpoint: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROCESS,
        endpoint,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode().strip()


async def test_spans_and_metrics_reach_the_named_collector_before_the_process_ends_and_baggage_stays() -> None:
    async with a_collector() as (collector, endpoint):
        assert await run(endpoint) == "['traceparent']"
    assert ("ninaku-library", "reading") in collector.spans
    assert ("ninaku.library", "reads") in collector.metrics


async def test_without_a_collector_traces_still_travel_and_nothing_is_exported() -> None:
    assert await run("") == "['traceparent']"
