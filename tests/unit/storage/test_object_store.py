"""The object store against a server that misbehaves on purpose; the real server is in tests/storage."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from libs.storage.clients import Provider, StorageAccount, StorageLayout
from libs.storage.errors import StorageRefused, StorageUnavailable
from libs.storage.object_store import ObjectStore, open_object_store

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def a_store(handler: Handler, *, missing_answers_403: bool = False) -> AsyncIterator[ObjectStore]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    account = StorageAccount("bucket", "us-east-1", "key", SecretStr("secret"), f"http://127.0.0.1:{port}")
    layout = StorageLayout({Provider.S3_PRIVATE: account}, Provider.S3_PUBLIC)
    try:
        async with open_object_store(layout, missing_answers_403=missing_answers_403) as store:
            yield store
    finally:
        server.close()


def answering(status: str, code: str | None) -> Handler:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            body = (
                b"" if code is None or request.startswith(b"HEAD") else f"<Error><Code>{code}</Code></Error>".encode()
            )
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()

    return answer


@pytest.mark.case("A2a-2.03")
async def test_stops_reading_an_object_one_byte_past_the_cap_and_hangs_up() -> None:
    hung_up = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            hung_up.set()

    async with a_store(endless) as store:
        assert await store.read_at_most("s3-private", "in/token", 100_000) == b"x" * 100_001
        await asyncio.wait_for(hung_up.wait(), 20)


@pytest.mark.case("A2a-2.03")
@pytest.mark.parametrize("code", ["NoSuchKey", "NotFound"])
async def test_treats_a_missing_object_as_absent(code: str) -> None:
    async with a_store(answering("404 Not Found", code)) as store:
        assert await store.head("s3-private", "in/token") is None
        assert await store.read_at_most("s3-private", "in/token", 10) is None
        await store.remove("s3-private", "in/token")


@pytest.mark.case("A2a-2.03")
async def test_takes_403_for_missing_below_in_only_and_only_where_it_is_configured() -> None:
    forbidden = answering("403 Forbidden", "AccessDenied")
    async with a_store(forbidden, missing_answers_403=True) as store:
        assert await store.head("s3-private", "in/token") is None
        assert await store.read_at_most("s3-private", "in/token", 10) is None
        for key in ("m/token/original.webp", "inside"):
            with pytest.raises(StorageRefused):
                await store.head("s3-private", key)
    async with a_store(forbidden) as store:
        with pytest.raises(StorageRefused):
            await store.head("s3-private", "in/token")
        with pytest.raises(StorageRefused):
            await store.read_at_most("s3-private", "in/token", 10)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("500 Internal Server Error", "InternalError"),
        ("503 Slow Down", "SlowDown"),
        ("503 Service Unavailable", None),
        ("429 Too Many Requests", "TooManyRequests"),
        ("400 Bad Request", "RequestTimeout"),
    ],
)
async def test_what_may_pass_is_unavailable(status: str, code: str | None) -> None:
    async with a_store(answering(status, code)) as store:
        with pytest.raises(StorageUnavailable) as read:
            await store.read_at_most("s3-private", "m/token/original.webp", 10)
    assert (read.value.operation, read.value.provider) == ("read", "s3-private")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("403 Forbidden", "AccessDenied"),
        ("403 Forbidden", "SignatureDoesNotMatch"),
        ("404 Not Found", "NoSuchBucket"),
        ("400 Bad Request", "InvalidRequest"),
    ],
)
async def test_what_waiting_does_not_cure_is_refused(status: str, code: str) -> None:
    async with a_store(answering(status, code)) as store:
        with pytest.raises(StorageRefused) as read:
            await store.read_at_most("s3-private", "m/token/original.webp", 10)
        with pytest.raises(StorageRefused):
            await store.remove("s3-private", "m/token/original.webp")
        with pytest.raises(StorageRefused):
            await store.put("s3-private", "m/token/original.webp", b"x", "image/webp", None)
    assert read.value.code == code


async def test_a_server_that_cannot_be_reached_is_unavailable() -> None:
    account = StorageAccount("bucket", "us-east-1", "key", SecretStr("secret"), "http://127.0.0.1:1")
    async with open_object_store(StorageLayout({Provider.S3_PRIVATE: account}, Provider.S3_PUBLIC)) as store:
        with pytest.raises(StorageUnavailable):
            await store.head("s3-private", "in/token")


async def test_an_answer_that_breaks_off_is_unavailable() -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")
        await writer.drain()

    async with a_store(broken) as store:
        with pytest.raises(StorageUnavailable):
            await store.read_at_most("s3-private", "m/token/original.webp", 2_000)


async def test_a_provider_without_a_bucket_here_is_an_error_of_the_program() -> None:
    async with a_store(answering("200 OK", None)) as store:
        with pytest.raises(KeyError):
            await store.head("r2-public", "a/token/p1/tile.webp")
