"""The metadata that every call carries, and what is known of the call being answered."""

import re
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from opentelemetry import trace

REQUEST_ID: Final = "x-request-id"
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LONGEST_TRACESTATE: Final = 512


@dataclass(frozen=True, slots=True)
class Call:
    """The call that the current task answers."""

    method: str
    """Full name, for example ``/ninaku.library.v1.Library/GetAsset``."""
    metadata: Mapping[str, str | bytes]
    """What the caller sent; of a repeated key, the first value."""
    request_id: str
    """The caller's request id when it is well-formed, a new one otherwise."""


_CURRENT: Final[ContextVar[Call]] = ContextVar("ninaku_rpc_call")


def current_call() -> Call:
    """Return the call being answered. Raises LookupError outside of one."""
    return _CURRENT.get()


def enter_call(call: Call) -> None:
    """Make `call` the current one; a handler runs in a task of its own, so nothing has to be taken back."""
    _CURRENT.set(call)


def is_request_id(value: object) -> bool:
    """Whether `value` may be kept as a request id: 1 to 64 characters that are harmless in a header and a log."""
    return isinstance(value, str) and _REQUEST_ID.fullmatch(value) is not None


def new_request_id() -> str:
    """Return a fresh request id."""
    return uuid.uuid4().hex


def current_traceparent() -> str | None:
    """Return the W3C traceparent of the current span, or None when nothing is being traced."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def outgoing_metadata(request_id: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call made on behalf of `request_id`: it, the trace context, and `more`.

    A plain tuple handed to the stub, because a client interceptor costs every call a task of its own.
    """
    carried = [(REQUEST_ID, request_id), *more]
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        carried.append((TRACEPARENT, f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"))
        tracestate = span.trace_state.to_header() if span.trace_state else ""
        if tracestate and len(tracestate) <= _LONGEST_TRACESTATE:
            carried.append((TRACESTATE, tracestate))
    return tuple(carried)
