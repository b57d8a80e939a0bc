"""What a caller sees of an exception: the registered code, or a fixed text."""

import asyncio
from typing import Any

import grpc
import pytest
import structlog

from libs.database.errors import DatabaseError, DatabaseUnavailable
from libs.errors.refusal import FieldViolation, Refusal, invalid
from libs.errors.registry import REGISTRY
from libs.errors.status import refusal_from_rpc_error
from libs.rpc.metadata import outgoing_metadata
from tests.service.rpc.probe import METHODS, NAME, ask, probed

SECRET = "postgresql://ninaku:hunter2@db/internal"


def raising(error: BaseException) -> Any:
    async def behaviour(_context: Any) -> bytes:
        raise error

    return behaviour


@pytest.mark.parametrize("method", METHODS)
async def test_an_unknown_exception_becomes_internal_with_a_fixed_text_in_every_shape_of_method(
    method: str,
) -> None:
    async with probed(raising(ValueError(SECRET))) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, method)

    error = caught.value
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == REGISTRY["foundation.internal"].message
    everything = repr(
        (error.details(), error.initial_metadata(), error.trailing_metadata(), error.debug_error_string())
    )
    assert "hunter2" not in everything
    assert "ValueError" not in everything
    assert refusal_from_rpc_error(error).code == "foundation.internal"


@pytest.mark.parametrize("method", METHODS)
async def test_a_refusal_travels_with_its_code_its_meta_and_its_fields(method: str) -> None:
    refusal = Refusal(
        "foundation.validation_failed", meta={"retryAfterSeconds": "3"}, violations=(FieldViolation("a", "Wrong."),)
    )
    async with probed(raising(refusal)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, method)

    received = refusal_from_rpc_error(caught.value)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert received.code == "foundation.validation_failed"
    assert dict(received.meta) == {"retryAfterSeconds": "3"}
    assert received.violations == (FieldViolation("a", "Wrong."),)


async def test_bytes_that_are_no_message_of_the_method_are_an_invalid_request_and_quote_nothing() -> None:
    async def never(_context: Any) -> bytes:
        raise AssertionError("the handler must not run")

    async with probed(never) as channel:
        for call in (
            channel.unary_unary(f"/{NAME}/Read")(b"\xff\xfe"),
            channel.unary_stream(f"/{NAME}/ReadAndStream")(b"\xff\xfe").read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert refusal_from_rpc_error(caught.value).code == "foundation.validation_failed"
            assert "Decode" not in repr((caught.value.details(), caught.value.trailing_metadata()))


@pytest.mark.parametrize("code", sorted(REGISTRY))
async def test_every_registered_code_comes_back_as_itself(code: str) -> None:
    async with probed(raising(Refusal(code))) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, "Gather")

    assert caught.value.code() is REGISTRY[code].grpc_status
    assert refusal_from_rpc_error(caught.value).code == code


async def test_a_database_that_cannot_answer_is_unavailable_and_a_refused_statement_is_internal() -> None:
    async with probed(raising(DatabaseUnavailable())) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, "Gather")
    assert refusal_from_rpc_error(caught.value).code == "foundation.unavailable"

    async with probed(raising(DatabaseError("42501", "tenant_context_missing"))) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel)
    assert refusal_from_rpc_error(caught.value).code == "foundation.internal"
    assert "tenant_context_missing" not in str(caught.value)


async def test_the_cause_of_an_internal_failure_is_in_the_log_under_the_request_id() -> None:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        async with probed(raising(ValueError(SECRET))) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await ask(channel, metadata=outgoing_metadata("abc"))

    (line,) = [line for line in lines if line["event"] == "rpc failed"]
    assert (line["method"], line["request_id"], line["log_level"]) == (f"/{NAME}/Unary", "abc", "error")
    assert isinstance(line["exc_info"], ValueError)


async def test_a_cancelled_handler_is_cancelled_and_not_a_failure() -> None:
    started = asyncio.Event()
    ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def behaviour(_context: Any) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            ended.set_result(error)
            raise
        return b""

    async with probed(behaviour) as channel:
        call = asyncio.ensure_future(ask(channel))
        await started.wait()
        call.cancel()
        assert isinstance(await asyncio.wait_for(ended, 5), asyncio.CancelledError)


async def test_a_method_that_nobody_serves_is_unimplemented() -> None:
    async with probed(raising(ValueError(SECRET))) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/ninaku.probe.v1.Probe/Nothing")(b"")

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_validation_refusals_name_their_fields() -> None:
    refusal = invalid(FieldViolation("byte_size", "Must be at least 1."))

    assert (refusal.code, refusal.violations[0].field) == ("foundation.validation_failed", "byte_size")
