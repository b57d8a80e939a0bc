"""The process of delivery: `python -m services.delivery.main`."""

from contextlib import AsyncExitStack

from ninaku.delivery.v1 import asset_delivery_pb2, asset_delivery_pb2_grpc

from libs.assets.public_urls import PublicUrls
from libs.database.engine import create_database
from libs.rpc.process import Telemetry, run_process
from libs.rpc.server import RpcServer
from libs.settings.processes import DeliverySettings
from libs.tenancy.service_tokens import ServiceTokenVerifier, service_keys
from services.delivery.repository import DeliveryRepository
from services.delivery.servicer import AssetDeliveryServicer

SERVICE = "delivery"
POOL_SIZE = 16


async def serve(settings: DeliverySettings, telemetry: Telemetry) -> None:
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
            asset_delivery_pb2_grpc.add_AssetDeliveryServicer_to_server,
            AssetDeliveryServicer(
                DeliveryRepository(database),
                ServiceTokenVerifier(SERVICE, service_keys(settings.service_tokens.public_keys)),
                PublicUrls(settings.public_delivery.public_base_url),
            ),
            asset_delivery_pb2.DESCRIPTOR.services_by_name["AssetDelivery"].full_name,
        )
        await server.start()
        await server.run_until_signalled()


def main() -> None:
    """Run the process."""
    run_process(DeliverySettings, serve)


if __name__ == "__main__":
    main()
