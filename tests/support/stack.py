"""The product as it runs: every service its own process, against the real PostgreSQL and the real S3 server.

The processes are started once for each test process; tests keep apart by having organizations of their own.
"""

import asyncio
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from database import migrate
from libs.tenancy.service_tokens import ServiceTokenIssuer
from services.cli.local.children import die_with_parent
from services.cli.local.object_storage import LocalObjectStorage
from services.cli.local.postgres import LocalPostgres
from tests.support.database import PASSWORDS, Connection, Person, add_organization, add_person
from tests.support.object_storage import upload_signing_variables, worker_storage_variables

_PROJECT = Path(__file__).resolve().parents[2]
_START_SECONDS = 60.0
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Service:
    """A running process of ours."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def written(self) -> str:
        """Everything it has logged so far."""
        return self.log.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Stack:
    """The services without a worker; `worker` runs one for as long as a test wants it."""

    server: LocalPostgres
    database_name: str
    storage: LocalObjectStorage
    folder: Path
    issuer: ServiceTokenIssuer
    services: dict[str, Service] = field(default_factory=dict)

    def dsn(self, login: str = migrate.MIGRATOR) -> str:
        """The address of the stack's database for a login."""
        return self.server.dsn(login, PASSWORDS[login], self.database_name)

    @property
    def url(self) -> str:
        """The gateway's."""
        return f"http://{self.services['gateway'].address}"

    @contextmanager
    def running(self, module: str, environment: Mapping[str, str]) -> Iterator[Service]:
        """One more process, ended with SIGTERM."""
        service = self._start(module, environment)
        try:
            yield service
        finally:
            end(service)

    @contextmanager
    def worker(self, **more: str) -> Iterator[Service]:
        """A media worker."""
        variables = {"DATABASE_URL": self.dsn("ninaku_processing_worker"), **worker_storage_variables(self.storage)}
        with self.running("services.processing.worker", variables | {"ASSETS_IDLE_POLL_MS": "500"} | more) as service:
            yield service

    def written(self) -> str:
        """Everything that all services have logged so far."""
        return "".join(service.written() for service in self.services.values())

    def start_services(self, key: Ed25519PrivateKey) -> None:
        """Start the services of the main job."""
        public_key = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        public = {"ASSETS_PUBLIC_BASE_URL": self.storage.public_base_url}
        rows: dict[str, dict[str, str]] = {
            "admission": {
                "DATABASE_URL": self.dsn("ninaku_admission"),
                **upload_signing_variables(self.storage),
            },
            "library": {"DATABASE_URL": self.dsn("ninaku_library"), **public},
            "delivery": {
                "DATABASE_URL": self.dsn("ninaku_delivery"),
                "NINAKU_SERVICE_TOKEN_PUBLIC_KEYS": json.dumps({"k1": {"service": "catalog", "key": public_key}}),
                **public,
            },
        }
        launched = {name: self._launch(f"services.{name}.main", variables) for name, variables in rows.items()}
        for name, (process, log) in launched.items():
            self.services[name] = _listening(process, log)
        self.services["gateway"] = self._start("services.gateway.main", self.gateway_variables())

    def gateway_variables(self, **addresses: str) -> dict[str, str]:
        """The environment of a gateway in front of these services, or of others where named."""
        return {
            f"NINAKU_{name.upper()}_ADDRESS": addresses.get(name) or self.services[name].address
            for name in ("admission", "library", "delivery")
        }

    def _start(self, module: str, variables: Mapping[str, str]) -> Service:
        process, log = self._launch(module, variables)
        return _listening(process, log)

    def _launch(self, module: str, variables: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], Path]:
        log = self.folder / f"{module}.{secrets.token_hex(4)}.log"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": f"{_PROJECT}:{_PROJECT / 'build' / 'stubs'}",
            "PYTHONUNBUFFERED": "1",
            "NINAKU_LISTEN": "127.0.0.1:0",
            **variables,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=_PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - no threads of ours when it forks
            )
        return process, log


def end(service: Service) -> None:
    """End a process as an operator does."""
    service.process.terminate()
    try:
        service.process.wait(20)
    except subprocess.TimeoutExpired:
        service.process.kill()
        service.process.wait()


def _listening(process: subprocess.Popen[bytes], log: Path) -> Service:
    patience = time.monotonic() + _START_SECONDS
    while time.monotonic() < patience:
        text = log.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if '"listening"' in line and (found := re.search(r'"127\.0\.0\.1:(\d+)"', line)):
                return Service(process, int(found[1]), log)
        if process.poll() is not None:
            raise RuntimeError(f"{log.name} ended with {process.returncode}:\n{text}")
        time.sleep(0.02)
    process.kill()
    raise RuntimeError(f"{log.name} did not start:\n{log.read_text(encoding='utf-8', errors='replace')}")


@pytest.fixture(scope="session")
def stack(
    postgres_server: LocalPostgres, database_template: str, object_storage: LocalObjectStorage
) -> Iterator[Stack]:
    """Admission, library, delivery and gateway, each its own process under its own login."""
    name = f"stack_{secrets.token_hex(6)}"
    asyncio.run(_clone(postgres_server, database_template, name))
    key = Ed25519PrivateKey.generate()
    with tempfile.TemporaryDirectory(prefix="ninaku-stack-") as folder:
        stack = Stack(postgres_server, name, object_storage, Path(folder), ServiceTokenIssuer("k1", key))
        try:
            stack.start_services(key)
            yield stack
        finally:
            for service in reversed(stack.services.values()):
                end(service)


async def _clone(server: LocalPostgres, template: str, name: str) -> None:
    admin = await asyncpg.connect(server.admin_dsn)
    try:
        await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" OWNER {migrate.MIGRATOR}')
        await admin.execute(f'GRANT CONNECT ON DATABASE "{name}" TO {", ".join(migrate.LOGINS)}')
    finally:
        await admin.close()


@pytest.fixture
async def owner_connection(stack: Stack) -> AsyncIterator[Connection]:
    """The stack's database as the one who owns everything: for arranging and inspecting."""
    connection = await asyncpg.connect(stack.dsn())
    yield connection
    await connection.close()


@dataclass(frozen=True)
class Member:
    """A person of an organization, talking to the gateway."""

    person: Person
    http: httpx.AsyncClient
    gateway_url: str

    @property
    def headers(self) -> dict[str, str]:
        """What identifies the person."""
        return {
            "Authorization": f"Bearer {self.person.token}",
            "X-Organization-Id": str(self.person.organization_id),
        }

    async def request_upload(self, key: uuid.UUID | None = None, **changes: Any) -> httpx.Response:
        """Post an intent; the body of a small public JPEG unless changed."""
        body = {"mediaType": "image/jpeg", "byteSize": 1_000, "accessClass": "public"} | changes
        return await self.http.post(
            f"{self.gateway_url}/api/v1/assets/uploads",
            headers=self.headers | {"Idempotency-Key": str(key or uuid.uuid4())},
            json=body,
        )

    async def complete(self, upload_id: str) -> httpx.Response:
        """Say that the file was posted."""
        return await self.http.post(
            f"{self.gateway_url}/api/v1/assets/uploads/{upload_id}/completion", headers=self.headers
        )

    async def read(self, asset_id: str, **headers: str) -> httpx.Response:
        """Read an asset."""
        return await self.http.get(f"{self.gateway_url}/api/v1/assets/{asset_id}", headers=self.headers | headers)

    async def post_file(self, upload: Mapping[str, Any], data: bytes) -> httpx.Response:
        """Post the form to the object storage, as a browser does."""
        return await self.http.post(upload["url"], data=upload["fields"], files={"file": ("photo", data)})

    async def send(self, data: bytes, media_type: str = "image/jpeg", **changes: Any) -> str:
        """Take a file from intent to completion; return the asset's id."""
        requested = await self.request_upload(mediaType=media_type, byteSize=len(data), **changes)
        assert requested.status_code == 201, requested.text
        upload = requested.json()["data"]["upload"]
        posted = await self.post_file(upload, data)
        assert posted.status_code == 204, posted.text
        completed = await self.complete(upload["id"])
        assert completed.status_code == 202, completed.text
        asset_id: str = requested.json()["data"]["asset"]["id"]
        return asset_id

    async def settled(self, asset_id: str) -> dict[str, Any]:
        """Wait until an asset is ready or failed; return its document."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                asset: dict[str, Any] = (await self.read(asset_id)).json()["data"]
                if asset["status"] in ("ready", "failed"):
                    return asset
                await asyncio.sleep(0.05)


Hire = Callable[..., Awaitable[Member]]


@pytest.fixture
async def hire(stack: Stack, owner_connection: Connection) -> AsyncIterator[Hire]:
    """Make a member: of a new organization, or of a named one; an owner unless another role is named."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:

        async def hire(
            organization_id: uuid.UUID | None = None,
            role: str = "organization_owner",
            business_unit: str | None = None,
            gateway_url: str | None = None,
        ) -> Member:
            organization = organization_id or await add_organization(owner_connection)
            person = await add_person(owner_connection, organization, role, business_unit)
            return Member(person, http, gateway_url or stack.url)

        yield hire
