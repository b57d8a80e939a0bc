"""The process of the library: `python -m services.library.main`."""

from contextlib import AsyncExitStack

from ninaku.library.v1 import library_pb2, library_pb2_grpc

from libs.assets.public_urls import PublicUrls
from libs.database.engine import create_database
from libs.rpc.process import Telemetry, run_process
from libs.rpc.server import RpcServer
from libs.settings.processes import LibrarySettings
from libs.tenancy.tenant_context import TenantAccess
from services.library.repository import LibraryRepository
from services.library.servicer import LibraryServicer

SERVICE = "library"
POOL_SIZE = 16


async def serve(settings: LibrarySettings, telemetry: Telemetry) -> None:
    """Construct everything, serve until a signal, and take it down again."""
    async with AsyncExitStack() as stack:
        database = create_database(
            settings.database.url.get_secret_value(), pool_size=POOL_SIZE, application_name=settings.service_name
        )
        stack.push_async_callback(database.close)
        server = RpcServer(
            settings.listener.host, settings.listener.port, meter=telemetry.meter, tracer=telemetry.tracer
        )
        server.add_service(
            library_pb2_grpc.add_LibraryServicer_to_server,
            LibraryServicer(
                LibraryRepository(database),
                TenantAccess(database, SERVICE),
                PublicUrls(settings.public_delivery.public_base_url),
            ),
            library_pb2.DESCRIPTOR.services_by_name["Library"].full_name,
        )
        await server.start()
        await server.run_until_signalled()


def main() -> None:
    """Run the process."""
    run_process(LibrarySettings, serve)


if __name__ == "__main__":
    main()
