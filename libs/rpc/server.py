"""The gRPC server of every service process."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.metrics import Meter
from opentelemetry.trace import Tracer

from libs.rpc.interceptors import (
    DeadlineInterceptor,
    FailureInterceptor,
    InterceptorChain,
    ObservationInterceptor,
    RequestContextInterceptor,
    TracingInterceptor,
)
from libs.rpc.interceptors.chain import Interceptor

_MEBIBYTE = 1_048_576


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of a server; the defaults suit every service so far."""

    receive_bytes: int = _MEBIBYTE
    """Largest request."""
    send_bytes: int = 4 * _MEBIBYTE
    """Largest answer: 2,000 described assets with four URLs each take about one and a half."""
    metadata_bytes: int = 16_384
    """Most metadata of a call."""
    concurrent_calls: int = 2_000
    """Calls beyond this are answered RESOURCE_EXHAUSTED at once instead of queueing without end."""
    default_deadline_seconds: float = 10.0
    """Bound of a call without a deadline."""
    longest_deadline_seconds: float = 60.0
    """Bound of any call with one answer."""


def interceptor_layers(meter: Meter, tracer: Tracer | None, limits: ServerLimits) -> tuple[Interceptor, ...]:
    """Return the layers around every handler, outermost first, in the declared order."""
    return (
        RequestContextInterceptor(),
        TracingInterceptor(tracer),
        ObservationInterceptor(meter),
        DeadlineInterceptor(
            default_seconds=limits.default_deadline_seconds, longest_seconds=limits.longest_deadline_seconds
        ),
        FailureInterceptor(),
    )


class RpcServer:
    """A `grpc.aio` server with health, reflection, the interceptors and an orderly end.

    Make it inside the running event loop, then `add_service` each servicer and `start`.

    Args:
        host: Address to listen on.
        port: Port, or 0 for a free one.
        meter: Makes the instruments.
        tracer: Makes the spans, or None when nothing is exported.
        limits: Bounds of calls.
    """

    def __init__(
        self, host: str, port: int, *, meter: Meter, tracer: Tracer | None = None, limits: ServerLimits | None = None
    ) -> None:
        """Make the server; nothing listens yet."""
        bounds = limits or ServerLimits()
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._names: list[str] = []
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._log: Any = structlog.stdlib.get_logger("ninaku.rpc")
        self._stopping = asyncio.Event()
        self._server = grpc.aio.server(
            interceptors=(InterceptorChain(interceptor_layers(meter, tracer, bounds)),),
            maximum_concurrent_rpcs=bounds.concurrent_calls,
            options=(
                ("grpc.so_reuseport", 0),  # a taken port is an error, not a silent second listener
                ("grpc.max_receive_message_length", bounds.receive_bytes),
                ("grpc.max_send_message_length", bounds.send_bytes),
                ("grpc.max_metadata_size", bounds.metadata_bytes),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.max_connection_age_ms", 600_000),  # so that callers find new replicas
                ("grpc.max_connection_age_grace_ms", 30_000),
            ),
        )

    def add_service(self, add_to_server: Callable[[Any, Any], None], servicer: Any, name: str) -> None:
        """Serve one service.

        Args:
            add_to_server: The generated ``add_<Service>Servicer_to_server``.
            servicer: Its implementation, all async.
            name: Full name of the service, for health and reflection.
        """
        add_to_server(servicer, self._server)
        self._names.append(name)

    async def start(self) -> int:
        """Listen, and report SERVING for the server and each service. Returns the port.

        Raises:
            RuntimeError: The address is taken or not ours.
        """
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        reflection.enable_server_reflection((*self._names, health_name, reflection.SERVICE_NAME), self._server)
        port = self._server.add_insecure_port(self._address)
        await self._server.start()
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._log.info("listening", address=self._address.rpartition(":")[0] + f":{port}", services=self._names)
        return port

    async def run_until_signalled(self, *, drain_seconds: float = 10.0) -> None:
        """Serve until SIGTERM or SIGINT, then drain. A second signal ends at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        await self._stopping.wait()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await self.stop(drain_seconds=drain_seconds)

    def request_stop(self) -> None:
        """Make `run_until_signalled` return, as a signal does."""
        self._stopping.set()

    async def stop(self, *, drain_seconds: float = 10.0) -> None:
        """Report NOT_SERVING, take no new call, and let the running ones end within `drain_seconds`."""
        await self._health.enter_graceful_shutdown()
        self._log.info("draining", seconds=drain_seconds)
        await self._server.stop(drain_seconds)
