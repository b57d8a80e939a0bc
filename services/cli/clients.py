"""Asks other processes of this machine whether they serve."""

import asyncio
from typing import Final

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

_START_SECONDS: Final = 45.0


async def http_ready(url: str) -> None:
    """Waits until `url` answers well. Raises TimeoutError."""
    async with asyncio.timeout(_START_SECONDS), httpx.AsyncClient(trust_env=False) as http:
        while True:
            try:
                if (await http.get(url, timeout=1.0)).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def rpc_ready(address: str) -> None:
    """Waits for SERVING, on a fresh channel each time: one that failed waits a second before it tries again.

    Raises TimeoutError.
    """
    async with asyncio.timeout(_START_SECONDS):
        while True:
            # The environment's proxies are for the way out; they have no business on the loopback.
            async with grpc.aio.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),)) as channel:
                try:
                    answer = await health_pb2_grpc.HealthStub(channel).Check(
                        health_pb2.HealthCheckRequest(), timeout=1.0
                    )
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return
                except grpc.aio.AioRpcError:
                    pass
            await asyncio.sleep(0.05)
