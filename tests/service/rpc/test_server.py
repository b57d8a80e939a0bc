"""Health, reflection, draining, the port; and how a channel behaves towards them."""

import asyncio
import os
import signal
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from opentelemetry.metrics import NoOpMeter

from libs.errors.refusal import Refusal
from libs.rpc.client import Channel, MethodPolicy
from libs.rpc.server import RpcServer, ServerLimits
from tests.service.rpc.probe import NAME, Probe, add_probe, ask, probed

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def answer(_context: Any) -> bytes:
    return b"yes"


def new_server(behaviour: Any = answer, port: int = 0) -> RpcServer:
    server = RpcServer("127.0.0.1", port, meter=NoOpMeter("test"))
    server.add_service(add_probe, Probe(behaviour), NAME)
    return server


@pytest.mark.parametrize("service", ["", NAME])
async def test_a_started_server_reports_serving_for_itself_and_each_service(service: str) -> None:
    async with probed(answer) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status == SERVING


async def test_an_unknown_service_has_no_health() -> None:
    async with probed(answer) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="nobody"))

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_draining_server_says_so_and_lets_running_calls_end() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def behaviour(_context: Any) -> bytes:
        entered.set()
        await release.wait()
        return b"finished"

    server = new_server(behaviour)
    port = await server.start()
    async with Channel(f"127.0.0.1:{port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        running = asyncio.ensure_future(ask(channel))
        await entered.wait()
        stopping = asyncio.ensure_future(server.stop(drain_seconds=30))
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        release.set()
        assert await running == b"finished"
        await asyncio.wait_for(stopping, 10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_the_server(number: signal.Signals) -> None:
    server = new_server()
    await server.start()
    running = asyncio.ensure_future(server.run_until_signalled(drain_seconds=0))
    await asyncio.sleep(0)
    os.kill(os.getpid(), number)

    await asyncio.wait_for(running, 10)


async def test_reflection_lists_the_services() -> None:
    async with probed(answer) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)

        async def requests() -> Any:
            yield reflection_pb2.ServerReflectionRequest(list_services="")

        names = [
            service.name
            async for response in stub.ServerReflectionInfo(requests())
            for service in response.list_services_response.service
        ]

    assert {NAME, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= set(names)


async def test_a_taken_port_is_an_error() -> None:
    first = new_server()
    port = await first.start()
    second = new_server(port=port)
    with pytest.raises(RuntimeError):
        await second.start()
    await first.stop(drain_seconds=0)
    await second.stop(drain_seconds=0)


async def test_a_request_over_the_bound_is_refused_before_its_handler() -> None:
    handled: list[str] = []

    async def behaviour(_context: Any) -> bytes:
        handled.append("handled")
        return b""

    async with probed(behaviour, ServerLimits(receive_bytes=1_000)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{NAME}/Unary")(b"x" * 2_000)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert handled == []


async def test_only_safe_methods_are_tried_again_while_a_service_is_unavailable() -> None:
    tries: list[str] = []

    async def behaviour(_context: Any) -> bytes:
        tries.append("tried")
        if len(tries) < 3:
            raise Refusal("foundation.unavailable")
        return b"at last"

    async with probed(behaviour) as channel:
        assert await ask(channel) == b"at last"
    assert len(tries) == 3

    tries.clear()
    async with probed(behaviour) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(channel, "Gather")
    assert len(tries) == 1


async def test_every_call_of_a_channel_has_a_deadline() -> None:
    async def behaviour(context: Any) -> bytes:
        return str(context.time_remaining()).encode()

    server = new_server(behaviour)
    port = await server.start()
    async with Channel(f"127.0.0.1:{port}", (MethodPolicy(NAME, "Unary", 3.0),)) as channel:
        assert 2.0 < float(await ask(channel)) < 4.0
        assert 8.0 < float(await ask(channel, "Gather")) < 11.0
        assert 28.0 < float(await ask(channel, timeout=30)) < 31.0
    await server.stop(drain_seconds=0)


async def test_a_channel_finds_its_peer_again_after_a_restart() -> None:
    first = new_server()
    port = await first.start()
    async with Channel(f"127.0.0.1:{port}", (MethodPolicy(NAME, "Unary", safe=True),)) as channel:
        assert await ask(channel) == b"yes"
        await first.stop(drain_seconds=0)
        second = new_server(port=port)
        await second.start()
        assert await ask(channel, wait_for_ready=True) == b"yes"
        await second.stop(drain_seconds=0)
