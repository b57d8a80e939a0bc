"""The process of the queue's view: `python -m services.processing.main`. The worker is another (`worker.py`)."""

import asyncio
import contextlib
from contextlib import AsyncExitStack

from ninaku.processing.v1 import processing_pb2, processing_pb2_grpc

from libs.database.engine import create_database
from libs.observability.metrics import context_meter
from libs.rpc.process import Telemetry, run_process
from libs.rpc.server import RpcServer
from libs.settings.processes import ProcessingSettings
from libs.tenancy.service_tokens import ServiceTokenVerifier, service_keys
from services.processing.queue_gauges import QueueGauges
from services.processing.queue_repository import QueueRepository
from services.processing.servicer import ProcessingServicer

SERVICE = "processing"
POOL_SIZE = 4


async def serve(settings: ProcessingSettings, telemetry: Telemetry) -> None:
    """Construct everything, serve until a signal, and take it down again."""
    async with AsyncExitStack() as stack:
        database = create_database(
            settings.database.url.get_secret_value(), pool_size=POOL_SIZE, application_name=settings.service_name
        )
        stack.push_async_callback(database.close)
        repository = QueueRepository(database)
        server = RpcServer(
            settings.listener.host, settings.listener.port, meter=telemetry.meter, tracer=telemetry.tracer
        )
        server.add_service(
            processing_pb2_grpc.add_ProcessingServicer_to_server,
            ProcessingServicer(
                repository, ServiceTokenVerifier(SERVICE, service_keys(settings.service_tokens.public_keys))
            ),
            processing_pb2.DESCRIPTOR.services_by_name["Processing"].full_name,
        )
        if settings.observability.otlp_endpoint:  # without a collector nobody reads the gauges
            gauges = asyncio.create_task(QueueGauges(repository, context_meter("processing")).run(), name="gauges")
            stack.push_async_callback(_end, gauges)
        await server.start()
        await server.run_until_signalled()


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main() -> None:
    """Run the process."""
    run_process(ProcessingSettings, serve)


if __name__ == "__main__":
    main()
