"""The table of services that a local stack runs: a new context adds a row."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from database import migrate
from services.cli.clients import http_ready, rpc_ready
from services.cli.local.children import ChildProcess
from services.cli.local.state import Ports, StackSecrets, public_key_of

PROJECT_FOLDER: Final = Path(__file__).resolve().parents[3]
REGION: Final = "us-east-1"
# Services that call others sign with a key of their own; the command line speaks for the catalog's place until then.
SIGNING_SERVICES: Final = ("ninaku-catalog",)


@dataclass(frozen=True)
class ObjectStorageAccess:
    """How the processes reach the local S3 server: pairs are access key id and secret."""

    endpoint_url: str
    private_bucket: str
    public_bucket: str
    api_key: tuple[str, str]
    worker_key: tuple[str, str]

    @property
    def public_base_url(self) -> str:
        """The base of public URLs: on the loopback a bucket path is allowed."""
        return f"{self.endpoint_url}/{self.public_bucket}"


@dataclass(frozen=True)
class StackAddresses:
    """What the rows of the table build their environment from. `dsn` gives a login's database address."""

    ports: Ports
    secrets: StackSecrets
    dsn: Callable[[str], str]
    storage: ObjectStorageAccess


@dataclass(frozen=True)
class LocalService:
    """One process: `port_name` in the state's ports; `login` its database login; `environment` the rest it reads."""

    name: str
    module: str
    port_name: str
    login: str | None
    environment: Callable[[StackAddresses], Mapping[str, str]]
    is_http: bool = False


def _admission(stack: StackAddresses) -> Mapping[str, str]:
    return {
        "ASSETS_DATA_POLICY_PUBLISHED": "false",  # until signed links exist, private files stay refused
        "ASSETS_PUBLIC_BASE_URL": stack.storage.public_base_url,
        "ASSETS_S3_REGION": REGION,
        "ASSETS_S3_BUCKET": stack.storage.private_bucket,
        "ASSETS_S3_API_ACCESS_KEY_ID": stack.storage.api_key[0],
        "ASSETS_S3_API_SECRET_ACCESS_KEY": stack.storage.api_key[1],
        "ASSETS_S3_ENDPOINT_URL": stack.storage.endpoint_url,
    }


def _library(stack: StackAddresses) -> Mapping[str, str]:
    return {"ASSETS_PUBLIC_BASE_URL": stack.storage.public_base_url}


def _known_services(stack: StackAddresses) -> str:
    keys = {
        f"{service}-local": {"service": service, "key": public_key_of(key)}
        for service, key in stack.secrets.service_keys.items()
    }
    return json.dumps(keys)


def _delivery(stack: StackAddresses) -> Mapping[str, str]:
    return {
        "ASSETS_PUBLIC_BASE_URL": stack.storage.public_base_url,
        "NINAKU_SERVICE_TOKEN_PUBLIC_KEYS": _known_services(stack),
    }


def _processing(stack: StackAddresses) -> Mapping[str, str]:
    return {"NINAKU_SERVICE_TOKEN_PUBLIC_KEYS": _known_services(stack)}


def _processing_worker(stack: StackAddresses) -> Mapping[str, str]:
    return {
        "ASSETS_PUBLIC_BASE_URL": stack.storage.public_base_url,
        "ASSETS_S3_REGION": REGION,
        "ASSETS_S3_BUCKET": stack.storage.private_bucket,
        "ASSETS_S3_WORKER_ACCESS_KEY_ID": stack.storage.worker_key[0],
        "ASSETS_S3_WORKER_SECRET_ACCESS_KEY": stack.storage.worker_key[1],
        "ASSETS_S3_ENDPOINT_URL": stack.storage.endpoint_url,
        "ASSETS_R2_ACCOUNT_ID": "local",
        "ASSETS_R2_PUBLIC_BUCKET": stack.storage.public_bucket,
        "ASSETS_R2_ACCESS_KEY_ID": stack.storage.worker_key[0],
        "ASSETS_R2_SECRET_ACCESS_KEY": stack.storage.worker_key[1],
        "ASSETS_R2_ENDPOINT_URL": stack.storage.endpoint_url,
        "ASSETS_CDN": "none",  # the S3 server itself answers public URLs here
    }


def browser_origins(ports: Ports) -> tuple[str, ...]:
    """Where pages may come from that call the gateway and post to the S3 server: its own /docs, and as asked."""
    own = tuple(f"http://{host}:{ports.of('gateway')}" for host in ("127.0.0.1", "localhost"))
    return own + tuple(filter(None, (o.strip() for o in os.environ.get("NINAKU_CORS_ORIGINS", "").split(","))))


def _gateway(stack: StackAddresses) -> Mapping[str, str]:
    addresses = {
        f"NINAKU_{name.upper()}_ADDRESS": f"127.0.0.1:{stack.ports.of(name)}"
        for name in ("admission", "library", "delivery")
    }
    return {**addresses, "NINAKU_CORS_ORIGINS": ",".join(browser_origins(stack.ports))}


SERVICES: Final = (
    LocalService("admission", "services.admission.main", "admission", "ninaku_admission", _admission),
    LocalService("library", "services.library.main", "library", "ninaku_library", _library),
    LocalService("delivery", "services.delivery.main", "delivery", "ninaku_delivery", _delivery),
    LocalService("processing", "services.processing.main", "processing", "ninaku_processing", _processing),
    LocalService(
        "worker",
        "services.processing.worker",
        "processing_worker",
        "ninaku_processing_worker",
        _processing_worker,
    ),
    LocalService("gateway", "services.gateway.main", "gateway", None, _gateway, is_http=True),
)

# Every database login gets its own password, those of processes that are not in this table yet included.
LOGINS: Final = tuple(migrate.LOGINS)


def child_process(service: LocalService, stack: StackAddresses, log_level: str) -> ChildProcess:
    """The process of one row. It gets the variables of its own groups and nothing else of the caller's environment."""
    port = stack.ports.of(service.port_name)
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "GRPC_VERBOSITY": "ERROR",  # its remarks about forks are for nobody here
        "NINAKU_LISTEN": f"127.0.0.1:{port}",
        "NINAKU_LOG_FORMAT": "console",
        "NINAKU_LOG_LEVEL": log_level,
        **service.environment(stack),
    }
    if service.login is not None:
        environment["DATABASE_URL"] = stack.dsn(service.login)
    if "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]

    async def ready() -> None:
        if service.is_http:
            await http_ready(f"http://127.0.0.1:{port}/readyz")
        else:
            await rpc_ready(f"127.0.0.1:{port}")

    return ChildProcess(service.name, (sys.executable, "-m", service.module), environment, PROJECT_FOLDER, ready)
