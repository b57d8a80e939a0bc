"""The ASGI application: the edge around a router over the declared operations."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.metrics import Meter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.errors.refusal import Refusal
from libs.rpc.metadata import TRACEPARENT, is_request_id, new_request_id
from services.gateway.exchange import Answer, Header, Request, header
from services.gateway.failures import failure_answer
from services.gateway.operations import Operation

MOST_IN_FLIGHT: Final = 1_000
"""Requests beyond this are refused at once instead of queueing without end."""

_REQUEST_ID_KEY: Final = "ninaku.request_id"
_OPERATION_KEY: Final = "ninaku.operation"
_LOGGED_PATH: Final = 200
_PROBES: Final = frozenset({"healthz", "readyz"})
"""Asked every few seconds by whoever watches the process: counted, and written down only when they fail."""
_SECURITY_HEADERS: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_POLICY_NAME: Final = b"content-security-policy"
_POLICY: Final[Header] = (_POLICY_NAME, b"default-src 'none'; frame-ancestors 'none'")
_EXPOSED: Final = ("ETag", "Idempotent-Replayed", "Location", "Retry-After", "X-Request-Id")
_REQUEST_HEADERS: Final = (
    "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "X-Organization-Id",
    "X-Request-Id", "traceparent", "tracestate",
)  # fmt: skip


def build_app(
    operations: Sequence[Operation],
    *,
    origins: Sequence[str],
    meter: Meter,
    tracer: trace.Tracer | None,
    most_in_flight: int = MOST_IN_FLIGHT,
) -> ASGIApp:
    """Return the application that serves the operations.

    Args:
        operations: What is served; nothing else is.
        origins: Browser origins that may call it with credentials; with none, no CORS header is ever sent.
        meter: Makes the instruments.
        tracer: Makes the spans; with None the caller's trace context is only carried on.
        most_in_flight: Requests being answered at once.
    """
    app: ASGIApp = router(operations)
    if origins:
        app = CORSMiddleware(
            app,
            allow_origins=tuple(origins),
            allow_methods=sorted({operation.method for operation in operations}),
            allow_headers=_REQUEST_HEADERS,
            allow_credentials=True,
            expose_headers=_EXPOSED,
        )
    return Edge(app, meter=meter, tracer=tracer, most_in_flight=most_in_flight)


def router(operations: Sequence[Operation]) -> Router:
    """Return the router: one route for each path, in the order declared, matched on the raw path.

    Raises:
        ValueError: Two operations share method and path, or a name.
    """
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in operations:
        if operation.method in by_path[operation.path]:
            raise ValueError(f"{operation.method} {operation.path} is declared twice")
        by_path[operation.path][operation.method] = operation
    if len({operation.name for operation in operations}) != len(operations):
        raise ValueError("two operations share a name")
    routes = [Route(path, endpoint=PathEndpoint(methods), name=path) for path, methods in by_path.items()]
    return Router(routes, redirect_slashes=False, default=_unknown_route)


class PathEndpoint:
    """Answers the methods of one path, and maps every failure: nothing further out sees an exception."""

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        """Keep the operations by method; ``GET`` answers ``HEAD`` too."""
        self.operations = dict(operations)
        methods = [*self.operations, *(("HEAD",) if "GET" in self.operations else ())]
        self._allow = header("Allow", ", ".join(sorted(methods)))
        self._log: Any = structlog.stdlib.get_logger("ninaku.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method: str = scope["method"]
        operation = self.operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            refused = failure_answer(Refusal("foundation.method_not_allowed"))
            await respond(send, method, Answer(refused.status, refused.body, (*refused.headers, self._allow)))
            return
        scope[_OPERATION_KEY] = operation.name
        request = Request(
            method=method,
            path_parameters=scope["path_params"],
            query=scope["query_string"],
            request_id=scope[_REQUEST_ID_KEY],
            raw_headers=tuple(scope["headers"]),
            receive=receive,
        )
        try:
            answer = await operation.handler(request)
        except Refusal as refusal:
            answer = failure_answer(refusal)
            if refusal.__cause__ is not None and answer.status >= 500:
                self._log.warning("upstream failed", operation=operation.name, code=refusal.code)
        except Exception as error:
            self._log.error("request failed", operation=operation.name, exc_info=error)
            answer = failure_answer(Refusal("foundation.internal"))
        await respond(send, method, answer)


class Edge:
    """What every request passes: its id, its trace, its place in the log, and the headers that every answer has."""

    def __init__(self, app: ASGIApp, *, meter: Meter, tracer: trace.Tracer | None, most_in_flight: int) -> None:
        """Wrap the application."""
        self._app = app
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()
        self._most_in_flight = most_in_flight
        self._in_flight = 0
        self._log: Any = structlog.stdlib.get_logger("ninaku.http")
        self._duration = meter.create_histogram(
            "http.server.request.duration", unit="s", description="Time from a request's headers to its answer"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on and write it down."""
        if scope["type"] != "http":
            raise ValueError(f"{scope['type']} is not served")
        started = time.perf_counter()
        carrier: dict[str, str] = {}
        request_id = ""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                request_id = request_id or value.decode("latin-1")
            elif name in (b"traceparent", b"tracestate"):
                carrier.setdefault(name.decode("ascii"), value.decode("latin-1"))
        if not is_request_id(request_id):
            request_id = new_request_id()
        scope[_REQUEST_ID_KEY] = request_id
        # Routes match what was sent: an encoded slash stays inside its segment.
        raw_path = scope.get("raw_path")
        if raw_path is not None:
            scope["path"] = raw_path.decode("latin-1")
        status = 500
        named = (b"x-request-id", request_id.encode("ascii"))

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers: list[Header] = message["headers"]
                headers += (named, *_SECURITY_HEADERS)
                if not any(name == _POLICY_NAME for name, _ in headers):
                    headers.append(_POLICY)
            await send(message)

        self._in_flight += 1
        try:
            with structlog.contextvars.bound_contextvars(request_id=request_id):
                if self._in_flight > self._most_in_flight:
                    await respond(send_with_headers, scope["method"], failure_answer(Refusal("foundation.unavailable")))
                elif self._tracer is None and TRACEPARENT not in carrier:
                    await self._app(scope, receive, send_with_headers)
                else:
                    await self._traced(carrier, scope, receive, send_with_headers)
                self._observe(scope, status, time.perf_counter() - started)
        finally:
            self._in_flight -= 1

    async def _traced(self, carrier: Mapping[str, str], scope: Scope, receive: Receive, send: Send) -> None:
        parent = self._propagator.extract(carrier)
        if self._tracer is None:
            token = otel_context.attach(parent)
            try:
                await self._app(scope, receive, send)
            finally:
                otel_context.detach(token)
            return
        with self._tracer.start_as_current_span(
            scope["method"],
            context=parent,
            kind=trace.SpanKind.SERVER,
            attributes={"http.request.method": scope["method"]},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            status = 500

            async def send_and_note(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await self._app(scope, receive, send_and_note)
            finally:
                operation = scope.get(_OPERATION_KEY)
                if operation is not None:
                    span.update_name(operation)
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(trace.StatusCode.ERROR)

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        operation = scope.get(_OPERATION_KEY, "none")
        self._duration.record(seconds, {"http.route": operation, "http.response.status_code": status})
        if operation in _PROBES and status < 500:
            return
        write = self._log.warning if status >= 500 else self._log.info
        # Never the query or a header: those hold what people typed, and sessions.
        write(
            "request",
            method=scope["method"],
            path=scope["path"][:_LOGGED_PATH],
            operation=operation,
            status=status,
            milliseconds=round(seconds * 1000, 2),
        )


async def respond(send: Send, method: str, answer: Answer) -> None:
    """Send an answer; ``HEAD`` gets the headers that ``GET`` would."""
    headers = list(answer.headers)
    if answer.status not in (204, 304):
        headers.append((b"content-length", str(len(answer.body)).encode("ascii")))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})


async def _unknown_route(scope: Scope, _receive: Receive, send: Send) -> None:
    await respond(send, scope["method"], failure_answer(Refusal("foundation.route_not_found")))
