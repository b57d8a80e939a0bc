"""The process of the gateway: `python -m services.gateway.main`. Everything is constructed here."""

import logging
from importlib.metadata import version

from libs.rpc.client import Channel
from libs.rpc.process import Telemetry, run_process
from libs.settings.processes import GatewaySettings
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


async def serve(settings: GatewaySettings, telemetry: Telemetry) -> None:
    """Construct everything, serve until a signal, and take it down again."""
    # The server's own lines say nothing that ours do not, until something is wrong.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLogger().level))
    readiness = Readiness()
    async with (
        Channel(settings.upstreams.admission, ADMISSION_POLICIES) as admission,
        Channel(settings.upstreams.library, LIBRARY_POLICIES) as library,
    ):
        app = build_app(
            operations(AdmissionClient(admission), LibraryClient(library), readiness),
            origins=settings.cross_origin.origins,
            meter=telemetry.meter,
            tracer=telemetry.tracer,
        )
        await HttpServer(app, settings.listener.host, settings.listener.port, readiness).serve()


def main() -> None:
    """Run the process."""
    run_process(GatewaySettings, serve)


if __name__ == "__main__":
    main()
