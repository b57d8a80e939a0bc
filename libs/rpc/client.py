"""Channels to other services."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import grpc

DEFAULT_DEADLINE_SECONDS = 10.0
"""Bound of a call whose method has no policy."""


@dataclass(frozen=True, slots=True)
class MethodPolicy:
    """How one method is called."""

    service: str
    """Full name of the service, for example ``ninaku.library.v1.Library``."""
    method: str
    """Name of the method."""
    deadline_seconds: float = DEFAULT_DEADLINE_SECONDS
    """Bound of a call, retries included, unless the call itself names another."""
    safe: bool = False
    """Whether repeating the call changes nothing: only then is UNAVAILABLE tried again."""


class Channel:
    """A channel to one service; generated stubs take it as they take gRPC's own.

    It connects by itself, also again after the peer restarts. Every call has a deadline. The deadline is given with
    each call: the ``timeout`` of a service config ends calls of `grpc.aio` 1.85 the moment they start.

    Pass `libs.rpc.metadata.outgoing_metadata(...)` as the metadata of each call. A failed one raises
    `grpc.aio.AioRpcError`, which `libs.errors.status.refusal_from_rpc_error` turns into a refusal.

    Args:
        address: host:port of the peer, or any gRPC target.
        policies: How its methods are called.
    """

    def __init__(self, address: str, policies: Iterable[MethodPolicy] = ()) -> None:
        """Open the channel; nothing connects before the first call."""
        known = tuple(policies)
        self._deadlines = {f"/{policy.service}/{policy.method}": policy.deadline_seconds for policy in known}
        self._channel = grpc.aio.insecure_channel(
            address,
            options=(
                ("grpc.service_config", retry_config(known)),
                ("grpc.service_config_disable_resolution", 1),
                ("grpc.enable_retries", 1),
                # The process-wide pool would hand on another channel's back-off from a server that had this port.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", 8 * 1_048_576),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2_000),
            ),
        )

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what calls a method of one request and one answer."""
        return self._bounded(method, self._channel.unary_unary(method, *args, **kwargs))

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what calls a method that answers with a stream."""
        return self._bounded(method, self._channel.unary_stream(method, *args, **kwargs))

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what calls a method that takes a stream."""
        return self._bounded(method, self._channel.stream_unary(method, *args, **kwargs))

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what calls a method that takes and answers streams."""
        return self._bounded(method, self._channel.stream_stream(method, *args, **kwargs))

    def _bounded(self, method: str, multicallable: Any) -> Any:
        deadline = self._deadlines.get(method, DEFAULT_DEADLINE_SECONDS)

        def call(request: Any, *, timeout: float | None = None, **kwargs: Any) -> Any:
            return multicallable(request, timeout=deadline if timeout is None else timeout, **kwargs)

        return call

    async def close(self, grace: float | None = None) -> None:
        """Close it; calls under way may end within `grace` seconds."""
        await self._channel.close(grace)

    async def __aenter__(self) -> Self:
        """Return the channel."""
        return self

    async def __aexit__(self, *_exception: object) -> None:
        """Close it."""
        await self.close()


def retry_config(policies: Iterable[MethodPolicy]) -> str:
    """Return the gRPC service config that retries the safe methods on UNAVAILABLE, and no other."""
    retried: list[dict[str, Any]] = [
        {
            "name": [{"service": policy.service, "method": policy.method}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.05s",
                "maxBackoff": "0.5s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
        for policy in policies
        if policy.safe
    ]
    return json.dumps(
        {
            "loadBalancingConfig": [{"round_robin": {}}],
            "methodConfig": retried,
            # Retries stop when a peer mostly fails, so that they never make an outage worse.
            "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1},
        }
    )
