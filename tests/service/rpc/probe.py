"""A service of all four shapes, answering whatever its behaviour says; messages are plain bytes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry.metrics import NoOpMeter

from libs.rpc.client import Channel, MethodPolicy
from libs.rpc.server import RpcServer, ServerLimits

NAME = "ninaku.probe.v1.Probe"
Behaviour = Callable[[Any], Awaitable[bytes]]


class Probe:
    """Each method runs `behaviour` once and answers what it returns."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    async def unary(self, request: bytes, context: Any) -> bytes:
        return await self.behaviour(context)

    async def stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        yield await self.behaviour(context)

    async def writing(self, request: bytes, context: Any) -> None:
        await context.write(b"first")
        await context.write(await self.behaviour(context))

    async def gather(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        async for _ in requests:
            pass
        return await self.behaviour(context)

    async def chat(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for _ in requests:
            yield await self.behaviour(context)


def _text(data: bytes) -> str:
    return data.decode("utf-8")


def add_probe(probe: Probe, server: Any) -> None:
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                NAME,
                {
                    "Unary": grpc.unary_unary_rpc_method_handler(probe.unary),
                    "Stream": grpc.unary_stream_rpc_method_handler(probe.stream),
                    "Writing": grpc.unary_stream_rpc_method_handler(probe.writing),
                    "Gather": grpc.stream_unary_rpc_method_handler(probe.gather),
                    "Read": grpc.unary_unary_rpc_method_handler(probe.unary, request_deserializer=_text),
                    "ReadAndStream": grpc.unary_stream_rpc_method_handler(probe.stream, request_deserializer=_text),
                    "Chat": grpc.stream_stream_rpc_method_handler(probe.chat),
                },
            ),
        )
    )


@asynccontextmanager
async def probed(behaviour: Behaviour, limits: ServerLimits | None = None) -> AsyncIterator[Channel]:
    """A running server with a probe, and a channel to it."""
    server = RpcServer("127.0.0.1", 0, meter=NoOpMeter("test"), limits=limits)
    server.add_service(add_probe, Probe(behaviour), NAME)
    port = await server.start()
    async with Channel(f"127.0.0.1:{port}", (MethodPolicy(NAME, "Unary", 5.0, safe=True),)) as channel:
        try:
            yield channel
        finally:
            await server.stop(drain_seconds=0)


async def ask(channel: Channel, method: str = "Unary", **kwargs: Any) -> bytes:
    """Call one method of the probe and return its last answer."""
    path = f"/{NAME}/{method}"
    last = b""
    if method == "Unary":
        last = await channel.unary_unary(path)(b"", **kwargs)
    elif method == "Gather":
        last = await channel.stream_unary(path)(_one(), **kwargs)
    elif method == "Chat":
        async for message in channel.stream_stream(path)(_one(), **kwargs):
            last = message
    else:
        async for message in channel.unary_stream(path)(b"", **kwargs):
            last = message
    return last


async def _one() -> AsyncIterator[bytes]:
    yield b""


METHODS = ("Unary", "Stream", "Writing", "Gather", "Chat")
