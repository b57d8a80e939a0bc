"""Each service as its own process: the environment it takes, its health, and its end on a signal."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from grpc_health.v1 import health_pb2, health_pb2_grpc

from libs.rpc.client import Channel
from tests.support.database import DatabaseUnderTest

ROOT = Path(__file__).parents[2]
SERVICES = {
    "admission": "ninaku.admission.v1.Admission",
    "library": "ninaku.library.v1.Library",
    "delivery": "ninaku.delivery.v1.AssetDelivery",
    "processing": "ninaku.processing.v1.Processing",
}


def environment(name: str, database_url: str) -> dict[str, str]:
    """What the process needs, and nothing else."""
    tokens = {
        "NINAKU_SERVICE_TOKEN_PUBLIC_KEYS": json.dumps(
            {
                "catalog-1": {
                    "service": "catalog",
                    "key": base64.b64encode(
                        Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
                    ).decode(),
                }
            }
        ),
    }
    own = {
        "admission": {
            "ASSETS_S3_REGION": "us-east-1",
            "ASSETS_S3_BUCKET": "ninaku-test-assets",
            "ASSETS_S3_API_ACCESS_KEY_ID": "AKIATEST",
            "ASSETS_S3_API_SECRET_ACCESS_KEY": "a-secret-that-signs",
            "ASSETS_PUBLIC_BASE_URL": "https://media.example.com",
        },
        "library": {"ASSETS_PUBLIC_BASE_URL": "https://media.example.com"},
        "delivery": {
            "ASSETS_PUBLIC_BASE_URL": "https://media.example.com",
            **tokens,
        },
        "processing": tokens,
    }[name]
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "build" / "stubs"))),
        "NINAKU_LISTEN": "127.0.0.1:0",
        "NINAKU_LOG_FORMAT": "json",
        "DATABASE_URL": database_url,
        **own,
    }


@contextlib.asynccontextmanager
async def process(name: str, variables: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"services.{name}.main",
        env=variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def address_of(started: asyncio.subprocess.Process) -> str:
    """The address the process says that it listens on."""
    assert started.stdout is not None
    while True:
        line = await asyncio.wait_for(started.stdout.readline(), 60)
        assert line, (await started.stderr.read() if started.stderr else b"").decode()
        event = json.loads(line)
        if event["event"] == "listening":
            address: str = event["address"]
            return address


@pytest.mark.parametrize("name", list(SERVICES))
async def test_a_service_serves_with_its_own_variables_and_ends_in_order_on_a_signal(
    name: str, database: DatabaseUnderTest
) -> None:
    async with process(name, environment(name, database.dsn(f"ninaku_{name}"))) as started:
        async with Channel(await address_of(started)) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for service in ("", SERVICES[name]):
                health = await stub.Check(health_pb2.HealthCheckRequest(service=service))
                assert health.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(f"/{SERVICES[name]}/Nothing")(b"")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        started.send_signal(signal.SIGTERM)
        output, errors = await asyncio.wait_for(started.communicate(), 30)

    assert started.returncode == 0, errors.decode()
    assert errors == b""
    assert [json.loads(line)["event"] for line in output.splitlines()] == ["draining"]


@pytest.mark.parametrize("name", list(SERVICES))
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"DATABASE_URL": ""}, "DATABASE_URL"),
        ({"NINAKU_LISTEN": "nowhere"}, "NINAKU_LISTEN"),
        ({"ASSETS_S3_WORKER_SECRET_ACCESS_KEY": "misplaced-secret"}, "ASSETS_S3_WORKER_SECRET_ACCESS_KEY"),
    ],
)
async def test_a_service_refuses_an_environment_that_does_not_fit_by_the_variables_names(
    name: str, change: dict[str, str], named: str
) -> None:
    variables = environment(name, "postgresql://a:b@127.0.0.1:1/c") | change
    async with process(name, variables) as started:
        output, errors = await asyncio.wait_for(started.communicate(), 60)

    assert started.returncode == 1
    assert named in errors.decode()
    assert "Traceback" not in errors.decode()
    assert "misplaced-secret" not in (output + errors).decode()


async def test_a_service_starts_without_its_database_and_answers_unavailable_until_it_is_there() -> None:
    async with (
        process("library", environment("library", "postgresql://a:b@127.0.0.1:1/c")) as started,
        Channel(await address_of(started)) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/ninaku.library.v1.Library/GetAsset")(
                b"",
                metadata=(
                    ("authorization", "Bearer abc"),
                    ("x-organization-id", "6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
                ),
            )

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "127.0.0.1" not in (caught.value.details() or "")
