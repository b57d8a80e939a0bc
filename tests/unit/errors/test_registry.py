"""The registry of public codes."""

import re

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc.aio import AioRpcError, Metadata
from ninaku.assets.v1 import errors_pb2

from libs.errors.refusal import FieldViolation, Refusal, invalid
from libs.errors.registry import REGISTRY
from libs.errors.status import error_domain, error_reason, public_code, refusal_from_rpc_error, to_status


def failed_call(status: status_pb2.Status | None, code: grpc.StatusCode) -> AioRpcError:
    trailing = Metadata() if status is None else Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return AioRpcError(code, Metadata(), trailing, "password=hunter2", None)


def test_every_code_is_a_context_and_a_reason_with_words_for_people() -> None:
    for code, entry in REGISTRY.items():
        assert re.fullmatch(r"[a-z]+\.[a-z][a-z_]{2,60}", code)
        assert entry.message.endswith(".")
        assert entry.remedy.endswith(".")
        assert 400 <= entry.http_status < 600
        assert entry.grpc_status is not grpc.StatusCode.OK


def test_every_asset_code_stands_in_the_proto_and_every_reason_of_the_proto_is_registered() -> None:
    reasons = {value.name.removeprefix("ERROR_REASON_") for value in errors_pb2.ErrorReason.DESCRIPTOR.values} - {
        "UNSPECIFIED"
    }
    registered = {error_reason(code) for code in REGISTRY if code.startswith("assets.")}
    assert reasons == registered


@pytest.mark.parametrize("code", REGISTRY)
def test_a_code_survives_the_way_over_grpc(code: str) -> None:
    assert public_code(error_domain(code), error_reason(code)) == code
    sent = Refusal(code, meta={"retryAfterSeconds": "7"}, violations=(FieldViolation("byte_size", "Too small."),))
    got = refusal_from_rpc_error(failed_call(to_status(sent), sent.entry.grpc_status))
    assert (got.code, dict(got.meta), got.violations) == (code, {"retryAfterSeconds": "7"}, sent.violations)


def test_an_unknown_code_cannot_be_raised() -> None:
    with pytest.raises(KeyError):
        Refusal("assets.no_such_code")


def test_field_violations_travel_as_bad_request() -> None:
    status = to_status(invalid(FieldViolation("media_type", "Not set.")))
    assert status.code == code_pb2.INVALID_ARGUMENT
    bad_request = error_details_pb2.BadRequest()
    assert status.details[1].Unpack(bad_request)
    assert bad_request.field_violations[0].field == "media_type"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (grpc.StatusCode.UNAVAILABLE, "foundation.unavailable"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "foundation.deadline_exceeded"),
        (grpc.StatusCode.UNAUTHENTICATED, "identity.unauthenticated"),
        (grpc.StatusCode.INTERNAL, "foundation.internal"),
        (grpc.StatusCode.UNKNOWN, "foundation.internal"),
    ],
)
def test_a_status_without_a_known_code_becomes_the_foundation_code_of_its_kind(
    status: grpc.StatusCode, code: str
) -> None:
    refusal = refusal_from_rpc_error(failed_call(None, status))
    assert refusal.code == code
    assert "hunter2" not in str(refusal)


def test_a_code_of_a_newer_peer_is_not_repeated() -> None:
    info = error_details_pb2.ErrorInfo(domain="assets.ninaku.io", reason="INVENTED_LATER")
    status = status_pb2.Status(code=9, message="free text")
    status.details.add().Pack(info)
    assert (
        refusal_from_rpc_error(failed_call(status, grpc.StatusCode.FAILED_PRECONDITION)).code == "foundation.internal"
    )


def test_details_that_are_not_a_status_are_ignored() -> None:
    error = AioRpcError(
        grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(("grpc-status-details-bin", b"\xff\xff")), "", None
    )
    assert refusal_from_rpc_error(error).code == "foundation.unavailable"
