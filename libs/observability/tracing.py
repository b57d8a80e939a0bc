"""Traces: always there to correlate by, exported only where a collector is named."""

from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import set_global_textmap
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


def configure_tracing(service: str, endpoint: str | None) -> Callable[[], None]:
    """Makes the process's spans carry `service`, and sends them to `endpoint` over OTLP/gRPC when there is one.

    Returns what flushes and stops the export; it blocks up to a few seconds. Only the trace context crosses a process
    border: baggage, which could carry anything, does not. Called once, by a process's main.
    """
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}))
    if endpoint is not None:
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    set_global_textmap(TraceContextTextMapPropagator())
    return provider.shutdown
