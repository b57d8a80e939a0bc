"""Metrics: one provider per process, exported only where a collector is named."""

from collections.abc import Callable

from opentelemetry import metrics
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource


def configure_metrics(service: str, endpoint: str | None) -> Callable[[], None]:
    """Makes the process's instruments carry `service`, and sends them to `endpoint` over OTLP/gRPC when there is one.

    Returns what flushes and stops the export. Called once, by a process's main, before instruments are made.
    """
    readers = []
    if endpoint is not None:
        exporter = OTLPMetricExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
        readers.append(PeriodicExportingMetricReader(exporter))
    provider = MeterProvider(resource=Resource.create({SERVICE_NAME: service}), metric_readers=readers)
    metrics.set_meter_provider(provider)
    return provider.shutdown


def context_meter(context: str) -> metrics.Meter:
    """The meter that a context's instruments are made with, named `ninaku.<context>`."""
    return metrics.get_meter(f"ninaku.{context}")
