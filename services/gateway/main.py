"""Runs the gateway: ``python -m services.gateway.main``."""

import asyncio
import logging
import sys
from importlib.metadata import version

import structlog
import uvloop
from opentelemetry import trace

from libs.observability.logging import configure_logging
from libs.observability.metrics import configure_metrics, context_meter
from libs.observability.tracing import configure_tracing
from libs.rpc.client import Channel
from libs.settings import GatewaySettings, SettingsError, load
from services.gateway.app import build_app
from services.gateway.assets_routes import assets_operations
from services.gateway.clients import ADMISSION_POLICIES, LIBRARY_POLICIES, AdmissionClient, LibraryClient
from services.gateway.docs_routes import docs_operations
from services.gateway.health_routes import Readiness, health_operations
from services.gateway.openapi import openapi_document
from services.gateway.operations import Operation
from services.gateway.server import HttpServer


def operations(admission: AdmissionClient, library: LibraryClient, readiness: Readiness) -> tuple[Operation, ...]:
    """Return everything that the gateway serves, in the order of the documentation."""

    def describe() -> dict[str, object]:
        return openapi_document(served, version("ninaku-assets"))

    served = (*assets_operations(admission, library), *docs_operations(describe), *health_operations(readiness))
    return served


async def serve(settings: GatewaySettings) -> None:
    """Serve until a signal comes."""
    readiness = Readiness()
    tracer = None if settings.observability.otlp_endpoint is None else trace.get_tracer("ninaku.gateway")
    async with (
        Channel(settings.upstreams.admission, ADMISSION_POLICIES) as admission,
        Channel(settings.upstreams.library, LIBRARY_POLICIES) as library,
    ):
        app = build_app(
            operations(AdmissionClient(admission), LibraryClient(library), readiness),
            origins=settings.cross_origin.origins,
            meter=context_meter("gateway"),
            tracer=tracer,
        )
        await HttpServer(app, settings.listener.host, settings.listener.port, readiness).serve()


def main() -> int:
    """Read the settings, set up logs, traces and metrics, and serve. Returns the exit code."""
    try:
        settings = load(GatewaySettings)
    except SettingsError as error:
        configure_logging(GatewaySettings.service_name)
        structlog.stdlib.get_logger("ninaku.http").error("cannot start", problems=error.problems)
        return 2
    seen = settings.observability
    configure_logging(settings.service_name, seen.log_level, seen.log_format)
    # The server's own lines say nothing that ours do not, until something is wrong.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLogger().level))
    stop_tracing = configure_tracing(settings.service_name, seen.otlp_endpoint)
    stop_metrics = configure_metrics(settings.service_name, seen.otlp_endpoint)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings))
    finally:
        stop_metrics()
        stop_tracing()
    return 0


if __name__ == "__main__":
    sys.exit(main())
