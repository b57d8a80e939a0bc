"""A gateway on loopback, and peers whose answers a test chooses and whose requests it reads."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest_asyncio
from google.protobuf.timestamp_pb2 import Timestamp
from ninaku.admission.v1 import admission_pb2, admission_pb2_grpc
from ninaku.admission.v1 import resources_pb2 as admission_resources
from ninaku.assets.v1 import resources_pb2
from ninaku.library.v1 import library_pb2, library_pb2_grpc
from opentelemetry import metrics

from libs.rpc.client import Channel
from libs.rpc.server import RpcServer
from services.gateway.app import build_app
from services.gateway.clients import ADMISSION_POLICIES, LIBRARY_POLICIES, AdmissionClient, LibraryClient
from services.gateway.health_routes import Readiness
from services.gateway.main import operations
from services.gateway.server import HttpServer

ALLOWED_ORIGIN = "https://app.example.com"
ASSET_ID = "01929c3e-7d4e-7a51-9f00-5c2b3c1a9e10"
UPLOAD_ID = "01929c3e-7d4e-7a51-9f00-5c2b3c1a9e11"
ORGANIZATION_ID = "01929c3e-7d4e-7a51-9f00-5c2b3c1a9e12"
ETAG = '"' + "0" * 64 + '"'


def ready_asset() -> resources_pb2.Asset:
    """A ready public asset, every field set."""
    return resources_pb2.Asset(
        id=ASSET_ID,
        status=resources_pb2.ASSET_STATUS_READY,
        access_class=resources_pb2.ACCESS_CLASS_PUBLIC,
        media_kind=resources_pb2.MEDIA_KIND_IMAGE,
        source_kind=resources_pb2.SOURCE_KIND_UPLOAD,
        display_name="Hamburguesa clásica",
        original_filename="hamburguesa.jpg",
        width=4000,
        height=3000,
        byte_size=812_345,
        created_at=Timestamp(seconds=1_791_295_391, nanos=402_000_000),
        ready_at=Timestamp(seconds=1_791_295_400),
        renditions=[
            resources_pb2.Rendition(name=name, url=f"https://media.example.com/a/x/p1/{name}.webp")
            for name in ("thumbnail", "tile", "card", "detail")
        ],
    )


def upload_form() -> admission_resources.Upload:
    """A form as admission gives it."""
    return admission_resources.Upload(
        id=UPLOAD_ID,
        url="https://bucket.s3.us-east-1.amazonaws.com/",
        fields={"key": "in/x", "Content-Type": "image/jpeg", "X-Amz-Signature": "secret-signature"},
        max_bytes=2_483_211,
        expires_at=Timestamp(seconds=1_791_295_991, nanos=402_000_000),
    )


@dataclass
class Peers:
    """What the peers saw, and what they answer: a message, or something to raise."""

    requests: list[Any] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    requested: Callable[[], Any] = lambda: admission_pb2.RequestUploadResponse(
        asset=ready_asset(), upload=upload_form()
    )
    completed: Callable[[], Any] = lambda: admission_pb2.CompleteUploadResponse(asset=ready_asset(), etag=ETAG)
    read: Callable[[], Any] = lambda: library_pb2.GetAssetResponse(asset=ready_asset(), etag=ETAG)
    delay_seconds: float = 0.0
    address: str = ""

    async def answer(self, request: Any, context: Any, answer: Callable[[], Any]) -> Any:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        return answer()


class CannedAdmission(admission_pb2_grpc.AdmissionServicer):
    """Admission that answers what the test chose."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def RequestUpload(self, request: Any, context: Any) -> Any:
        return await self._peers.answer(request, context, self._peers.requested)

    async def CompleteUpload(self, request: Any, context: Any) -> Any:
        return await self._peers.answer(request, context, self._peers.completed)


class CannedLibrary(library_pb2_grpc.LibraryServicer):
    """Library that answers what the test chose."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def GetAsset(self, request: Any, context: Any) -> Any:
        return await self._peers.answer(request, context, self._peers.read)


@dataclass
class Gateway:
    """A running gateway and its peers."""

    http: httpx.AsyncClient
    port: int
    peers: Peers
    stop_peers: Callable[[], Any]
    readiness: Readiness

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a well-formed caller."""
        return {"Authorization": "Bearer a-session", "X-Organization-Id": ORGANIZATION_ID}

    async def request_upload(self, body: Any = None, **headers: str) -> httpx.Response:
        """Post an intent; `body` replaces the good one, as JSON or as raw bytes."""
        content = body if isinstance(body, bytes) else json.dumps(intent() if body is None else body).encode()
        all_headers = (
            self.headers | {"Idempotency-Key": str(uuid.uuid4()), "Content-Type": "application/json"} | headers
        )
        return await self.http.post("/api/v1/assets/uploads", headers=all_headers, content=content)

    async def raw(self, *pieces: bytes) -> bytes:
        """Send bytes as they are on a new connection and return everything that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()


def intent(**changes: Any) -> dict[str, Any]:
    """A good intent with some fields changed."""
    return {
        "mediaType": "image/jpeg",
        "byteSize": 2_483_211,
        "accessClass": "public",
        "displayName": "Hamburguesa clásica",
        "originalFilename": "hamburguesa.jpg",
    } | changes


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """A gateway of the test's own, with one allowed origin and room for four requests at once."""
    peers = Peers()
    meter = metrics.NoOpMeter("test")
    rpc = RpcServer("127.0.0.1", 0, meter=meter)
    rpc.add_service(
        admission_pb2_grpc.add_AdmissionServicer_to_server, CannedAdmission(peers), "ninaku.admission.v1.Admission"
    )
    rpc.add_service(library_pb2_grpc.add_LibraryServicer_to_server, CannedLibrary(peers), "ninaku.library.v1.Library")
    address = peers.address = f"127.0.0.1:{await rpc.start()}"
    readiness = Readiness()
    async with Channel(address, ADMISSION_POLICIES) as admission, Channel(address, LIBRARY_POLICIES) as library:
        app = build_app(
            operations(AdmissionClient(admission), LibraryClient(library), readiness),
            origins=(ALLOWED_ORIGIN,),
            meter=meter,
            tracer=None,
            most_in_flight=4,
        )
        server = HttpServer(app, "127.0.0.1", 0, readiness)
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
            yield Gateway(client, server.port, peers, lambda: rpc.stop(drain_seconds=0), readiness)
        server.request_stop()
        await task
    await rpc.stop(drain_seconds=0)


def rpc_error(text: str) -> Callable[[], Any]:
    """An answer that raises what no handler should."""

    def fail() -> Any:
        raise RuntimeError(text)

    return fail
