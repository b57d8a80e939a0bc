"""The three services in this process, each a real server on port 0 under its own database login."""

import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ninaku.admission.v1 import admission_pb2, admission_pb2_grpc
from ninaku.assets.v1 import resources_pb2 as assets_pb
from ninaku.delivery.v1 import asset_delivery_pb2, asset_delivery_pb2_grpc
from ninaku.library.v1 import library_pb2, library_pb2_grpc
from opentelemetry.metrics import NoOpMeter
from pydantic import SecretStr
from sqlalchemy import event

from libs.assets.asset import AccessClass
from libs.assets.media_types import MediaType
from libs.assets.object_keys import master_key, public_rendition_key
from libs.assets.public_urls import PublicUrls
from libs.assets.rendition_profile import PROFILE_1, RENDITIONS
from libs.assets.uuid7 import uuid7
from libs.database.engine import Database, create_database
from libs.errors.refusal import Refusal
from libs.errors.status import refusal_from_rpc_error
from libs.rpc.client import Channel
from libs.rpc.server import RpcServer
from libs.storage.clients import StorageAccount
from libs.storage.upload_policy import UploadPolicy
from libs.tenancy.service_tokens import ServiceKey, ServiceTokenIssuer, ServiceTokenVerifier
from libs.tenancy.tenant_context import TenantAccess
from services.admission.domain import allowed_access_classes
from services.admission.rate_limit import RateLimit
from services.admission.repository import AdmissionRepository
from services.admission.servicer import AdmissionServicer
from services.admission.use_cases import Admission, PolicySigner
from services.delivery.repository import DeliveryRepository
from services.delivery.servicer import AssetDeliveryServicer
from services.library.repository import LibraryRepository
from services.library.servicer import LibraryServicer
from tests.support.database import Connection, DatabaseUnderTest, Person

URLS = PublicUrls("https://media.example.com")
ACCOUNT = StorageAccount(
    bucket="ninaku-test-assets",
    region="us-east-1",
    access_key_id="AKIATEST",
    secret_access_key=SecretStr("a-secret-that-signs"),
)


class Statements:
    """Every statement that a service sends, transaction control included."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def watch(self, database: Database) -> None:
        @event.listens_for(database.engine.sync_engine, "connect")
        def _connected(dbapi_connection: Any, _record: Any) -> None:
            dbapi_connection.driver_connection.add_query_logger(lambda query: self.sent.append(query.query.strip()))


class CountingSigner:
    """The real signer, and what it was asked for."""

    def __init__(self, signer: PolicySigner) -> None:
        self._signer = signer
        self.asked: list[tuple[str, str, int, int]] = []

    async def sign(self, key: str, media_type: str, max_bytes: int, expires_in_seconds: int) -> UploadPolicy:
        self.asked.append((key, media_type, max_bytes, expires_in_seconds))
        return await self._signer.sign(key, media_type, max_bytes, expires_in_seconds)


class Clock:
    """The time of day, which a test may push on."""

    def __init__(self) -> None:
        self.ahead: Callable[[datetime], datetime] = lambda now: now

    def __call__(self) -> datetime:
        return self.ahead(datetime.now(UTC))


@dataclass
class Services:
    """The running services, and what tests look at beside their answers."""

    admission: Any
    library: Any
    delivery: Any
    issuer: ServiceTokenIssuer
    signer: CountingSigner | None
    clock: Clock
    databases: list[Database]
    statements: dict[str, Statements] = field(default_factory=dict)


def as_person(person: Person, organization_id: uuid.UUID | None = None) -> tuple[tuple[str, str], ...]:
    return (
        ("authorization", f"Bearer {person.token}"),
        ("x-organization-id", str(organization_id or person.organization_id)),
    )


def upload_request(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "idempotency_key": str(uuid.uuid4()),
        "media_type": "image/jpeg",
        "byte_size": 2_483_211,
        "access_class": assets_pb.ACCESS_CLASS_PUBLIC,
    }
    return admission_pb2.RequestUploadRequest(**(values | changes))


async def refused(call: Any) -> Refusal:
    """The refusal that a call ends with."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return refusal_from_rpc_error(error)
    raise AssertionError(f"the call was answered: {answer}")


@asynccontextmanager
async def running_services(
    database: DatabaseUnderTest,
    policy_signer: PolicySigner | None,
    *,
    data_policy_published: bool = False,
    requests_a_minute: int = 1_000,
) -> AsyncIterator[Services]:
    """Admission, library and delivery, wired as main.py does it; without a signer there is no storage."""
    async with AsyncExitStack() as stack:
        clock, key = Clock(), Ed25519PrivateKey.generate()
        signer = None if policy_signer is None else CountingSigner(policy_signer)
        databases: dict[str, Database] = {}
        statements: dict[str, Statements] = {}
        for name in ("admission", "library", "delivery"):
            databases[name] = create_database(
                database.dsn(f"ninaku_{name}"), pool_size=8, application_name=f"ninaku-{name}"
            )
            stack.push_async_callback(databases[name].close)
            statements[name] = Statements()
            statements[name].watch(databases[name])
        admission = Admission(
            access=TenantAccess(databases["admission"], "admission"),
            repository=AdmissionRepository(),
            rate_limit=RateLimit(requests=requests_a_minute),
            signer=signer,
            allowed=allowed_access_classes(data_policy_published=data_policy_published),
            clock=clock,
            new_id=uuid7,
        )
        verifier = ServiceTokenVerifier("delivery", {"catalog-1": ServiceKey("catalog", key.public_key())})

        async def serve(add: Any, servicer: Any, name: str) -> Any:
            server = RpcServer("127.0.0.1", 0, meter=NoOpMeter("test"))
            server.add_service(add, servicer, name)
            port = await server.start()
            stack.push_async_callback(server.stop, drain_seconds=1)
            return await stack.enter_async_context(Channel(f"127.0.0.1:{port}"))

        yield Services(
            admission=admission_pb2_grpc.AdmissionStub(
                await serve(
                    admission_pb2_grpc.add_AdmissionServicer_to_server,
                    AdmissionServicer(admission, None if signer is None else URLS),
                    admission_pb2.DESCRIPTOR.services_by_name["Admission"].full_name,
                )
            ),
            library=library_pb2_grpc.LibraryStub(
                await serve(
                    library_pb2_grpc.add_LibraryServicer_to_server,
                    LibraryServicer(
                        LibraryRepository(databases["library"]), TenantAccess(databases["library"], "library"), URLS
                    ),
                    library_pb2.DESCRIPTOR.services_by_name["Library"].full_name,
                )
            ),
            delivery=asset_delivery_pb2_grpc.AssetDeliveryStub(
                await serve(
                    asset_delivery_pb2_grpc.add_AssetDeliveryServicer_to_server,
                    AssetDeliveryServicer(DeliveryRepository(databases["delivery"]), verifier, URLS),
                    asset_delivery_pb2.DESCRIPTOR.services_by_name["AssetDelivery"].full_name,
                )
            ),
            issuer=ServiceTokenIssuer("catalog-1", key),
            signer=signer,
            clock=clock,
            databases=list(databases.values()),
            statements=statements,
        )


async def count(owner: Connection, table: str) -> int:
    """How many rows a table has."""
    rows: int = await owner.fetchval(f"SELECT count(*) FROM {table}")
    return rows


async def process(worker: Connection, *, outcome: str = "ready", error_code: str | None = None) -> uuid.UUID:
    """Claim the next job as the worker's login and record how it ended. Returns the asset."""
    job = await worker.fetchrow(
        "SELECT * FROM assets.claim_processing_job('test', $1, 60, ARRAY['process_upload'])", token := uuid.uuid4()
    )
    ready = outcome == "ready"
    renditions = RENDITIONS[PROFILE_1] if ready else ()
    codes = ["original", *(rendition.code for rendition in renditions)] if ready else []
    keys = [
        master_key(job["delivery_token"]),
        *(public_rendition_key(job["delivery_token"], PROFILE_1, rendition.name) for rendition in renditions),
    ]
    await worker.fetchval(
        "SELECT assets.record_processing_outcome($1, $2, $3, $4, NULL, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        job["job_id"],
        token,
        outcome,
        error_code,
        codes,
        [MediaType.WEBP.value] * len(codes),
        [51_200 + index for index in range(len(codes))],
        [hashlib.sha256(code.encode()).digest() for code in codes],
        [1_600 for _ in codes],
        [1_200 for _ in codes],
        [job["original_variant_id"], *(uuid7() for _ in renditions)] if ready else [],
        [uuid7() for _ in codes],
        ["s3-private", *("r2-public" for _ in renditions)] if ready else [],
        keys if ready else [],
    )
    asset_id: uuid.UUID = job["asset_id"]
    return asset_id


async def give_asset(
    services: Services, person: Person, access_class: AccessClass = AccessClass.PUBLIC, **changes: Any
) -> tuple[uuid.UUID, str]:
    """Request an upload and complete it: an asset in processing. Returns its id and the upload's."""
    value = assets_pb.AccessClass.Value(f"ACCESS_CLASS_{access_class.name}")
    requested = await services.admission.RequestUpload(
        upload_request(access_class=value, **changes), metadata=as_person(person)
    )
    await services.admission.CompleteUpload(
        admission_pb2.CompleteUploadRequest(upload_id=requested.upload.id), metadata=as_person(person)
    )
    return uuid.UUID(requested.asset.id), requested.upload.id


def texts(values: Sequence[uuid.UUID]) -> list[str]:
    return [str(value) for value in values]
