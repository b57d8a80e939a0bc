"""Refusals over gRPC: ``google.rpc.Status`` with ``ErrorInfo``, and ``BadRequest`` for fields."""

from collections.abc import Iterable
from typing import cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from libs.errors.refusal import FieldViolation, Refusal
from libs.errors.registry import REGISTRY

_DOMAIN_SUFFIX = ".ninaku.io"
_DETAILS = "grpc-status-details-bin"


def error_domain(code: str) -> str:
    """Return the ErrorInfo domain of a public code: ``assets.x`` lives in ``assets.ninaku.io``."""
    return code.partition(".")[0] + _DOMAIN_SUFFIX


def error_reason(code: str) -> str:
    """Return the ErrorInfo reason of a public code: ``assets.not_found`` is ``NOT_FOUND``."""
    return code.partition(".")[2].upper()


def public_code(domain: str, reason: str) -> str | None:
    """Return the registered code that ``ErrorInfo`` names, or None when this registry knows no such code."""
    code = f"{domain.removesuffix(_DOMAIN_SUFFIX)}.{reason.lower()}"
    return code if code in REGISTRY else None


def to_status(refusal: Refusal) -> status_pb2.Status:
    """Return the status message of a refusal, its code and fields as details."""
    entry = refusal.entry
    info = error_details_pb2.ErrorInfo(domain=error_domain(entry.code), reason=error_reason(entry.code))
    info.metadata.update(refusal.meta)
    details = [_packed(info)]
    if refusal.violations:
        bad_request = error_details_pb2.BadRequest()
        for violation in refusal.violations:
            bad_request.field_violations.add(field=violation.field, description=violation.description)
        details.append(_packed(bad_request))
    return status_pb2.Status(code=entry.grpc_status.value[0], message=entry.message, details=details)


def to_grpc_status(refusal: Refusal) -> grpc.Status:
    """Return what ``context.abort_with_status`` takes."""
    return rpc_status.to_status(to_status(refusal))


def refusal_from_rpc_error(error: grpc.RpcError) -> Refusal:
    """Return the refusal that a failed call carries.

    A status without a code of the registry (the peer is down, a deadline passed, another version's code) becomes the
    foundation code of its kind, so that a caller never sees a peer's free text.
    """
    status = _carried_status(error)
    if status is not None:
        refusal = _refusal_of(status)
        if refusal is not None:
            return refusal
    return Refusal(_CODE_OF_STATUS.get(error.code(), "foundation.internal"))


_CODE_OF_STATUS = {
    grpc.StatusCode.UNAVAILABLE: "foundation.unavailable",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "foundation.unavailable",
    grpc.StatusCode.CANCELLED: "foundation.unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "foundation.deadline_exceeded",
    grpc.StatusCode.UNAUTHENTICATED: "identity.unauthenticated",
}


def _packed(message: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> any_pb2.Any:
    detail = any_pb2.Any()
    detail.Pack(message)
    return detail


def _carried_status(error: grpc.RpcError) -> status_pb2.Status | None:
    if isinstance(error, grpc.aio.AioRpcError):
        trailing = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
        return next((_parsed(value) for key, value in trailing if key == _DETAILS and isinstance(value, bytes)), None)
    return rpc_status.from_call(error)  # type: ignore[arg-type]


def _parsed(value: bytes) -> status_pb2.Status | None:
    try:
        return status_pb2.Status.FromString(value)
    except DecodeError:
        return None


def _refusal_of(status: status_pb2.Status) -> Refusal | None:
    code: str | None = None
    meta: dict[str, str] = {}
    violations: list[FieldViolation] = []
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        bad_request = error_details_pb2.BadRequest()
        if detail.Unpack(info):
            code, meta = public_code(info.domain, info.reason), dict(info.metadata)
        elif detail.Unpack(bad_request):
            violations = [FieldViolation(one.field, one.description) for one in bad_request.field_violations]
    return None if code is None else Refusal(code, meta=meta, violations=tuple(violations))
