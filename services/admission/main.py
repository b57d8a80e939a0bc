"""The process of admission: `python -m services.admission.main`."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime

from ninaku.admission.v1 import admission_pb2, admission_pb2_grpc

from libs.assets.public_urls import PublicUrls
from libs.assets.uuid7 import uuid7
from libs.database.engine import create_database
from libs.rpc.process import Telemetry, run_process
from libs.rpc.server import RpcServer
from libs.settings.processes import AdmissionSettings
from libs.storage.clients import s3_account
from libs.storage.upload_policy import open_upload_policy_signer
from libs.tenancy.tenant_context import TenantAccess
from services.admission.domain import allowed_access_classes
from services.admission.rate_limit import RateLimit
from services.admission.repository import AdmissionRepository
from services.admission.servicer import AdmissionServicer
from services.admission.use_cases import Admission

SERVICE = "admission"
POOL_SIZE = 16


async def serve(settings: AdmissionSettings, telemetry: Telemetry) -> None:
    """Construct everything, serve until a signal, and take it down again."""
    async with AsyncExitStack() as stack:
        database = create_database(
            settings.database.url.get_secret_value(), pool_size=POOL_SIZE, application_name=settings.service_name
        )
        stack.push_async_callback(database.close)
        signing = settings.upload_signing
        signer = None
        if signing is not None:
            signer = await stack.enter_async_context(open_upload_policy_signer(s3_account(signing)))
        admission = Admission(
            access=TenantAccess(database, SERVICE),
            repository=AdmissionRepository(),
            rate_limit=RateLimit(),
            signer=signer,
            allowed=allowed_access_classes(data_policy_published=settings.data_policy.published),
            clock=lambda: datetime.now(UTC),
            new_id=uuid7,
        )
        server = RpcServer(
            settings.listener.host, settings.listener.port, meter=telemetry.meter, tracer=telemetry.tracer
        )
        server.add_service(
            admission_pb2_grpc.add_AdmissionServicer_to_server,
            AdmissionServicer(admission, None if signing is None else PublicUrls(signing.public_base_url)),
            admission_pb2.DESCRIPTOR.services_by_name["Admission"].full_name,
        )
        await server.start()
        await server.run_until_signalled()


def main() -> None:
    """Run the process."""
    run_process(AdmissionSettings, serve)


if __name__ == "__main__":
    main()
