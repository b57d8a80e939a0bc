"""Something between a process and the server it talks to, which can hold, spoil, refuse or cut what passes.

`HttpProxy` stands before the S3 server and speaks HTTP/1.1, one connection per request; `PostgresProxy` stands before
PostgreSQL and knows which statement each message runs. A rule says what happens to a request; `Barrier` is the rule
that holds it until the test goes on.
"""

import asyncio
import contextlib
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

_CHUNK: Final = 64 * 1024
_PATIENCE_SECONDS: Final = 60.0
_ALL: Final = 1_000_000


class Cut(Exception):
    """The connection is to be reset."""


@dataclass(frozen=True)
class HttpRequest:
    """One request as it was sent: `path` is unquoted and has no query, `head` is the raw head with its blank line."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    head: bytes
    body: bytes


@dataclass(frozen=True)
class HttpAnswer:
    """An answer that a rule gives in the server's place."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The bytes on the wire; the connection ends with it."""
        lines = [f"HTTP/1.1 {self.status} -", *(f"{name}: {value}" for name, value in self.headers.items())]
        lines += [f"Content-Length: {len(self.body)}", "Connection: close", "", ""]
        return "\r\n".join(lines).encode() + self.body


HttpRule = Callable[[HttpRequest], Awaitable[HttpAnswer | None]]
"""None lets the request pass; `Cut` resets the connection."""


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request of a connection, with its whole body, asked for if need be; None when the connection ended."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    parts = urlsplit(target)
    return HttpRequest(method, unquote(parts.path), parts.query, headers, head, body)


class Barrier:
    """Holds what comes to it. `reached` waits for the first; `open` lets everything pass from then on."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    async def hold(self) -> None:
        """Stand here until the barrier opens."""
        self._reached.set()
        await self._open.wait()

    async def reached(self) -> None:
        """Return once something stands at the barrier."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self._reached.wait()

    def open(self) -> None:
        """Let pass what stands here, and all that comes."""
        self._open.set()


def method_and_path(method: str, pattern: str) -> Callable[[HttpRequest], bool]:
    """Matches a method and a piece of the path, as a regular expression."""
    compiled = re.compile(pattern)
    return lambda request: request.method == method and compiled.search(request.path) is not None


class HttpProxy:
    """Stands before an HTTP server. `rules` are asked in their order; the first answer or cut counts."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self.rules: list[HttpRule] = []
        self.after: list[HttpRule] = []
        """Asked once the server has answered, before the answer goes on."""
        self.requests: list[HttpRequest] = []
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where to find it."""
        return f"http://127.0.0.1:{self.port}"

    def hold(self, matches: Callable[[HttpRequest], bool], skip: int = 0, holds: int = _ALL) -> Barrier:
        """Hold `holds` matching requests before the server sees them, after `skip` of them have passed."""
        return self._barrier(self.rules, matches, skip, holds)

    def hold_answer(self, matches: Callable[[HttpRequest], bool], skip: int = 0, holds: int = _ALL) -> Barrier:
        """Hold the answers to matching requests: the server has done what was asked."""
        return self._barrier(self.after, matches, skip, holds)

    def _barrier(self, rules: list[HttpRule], matches: Callable[[HttpRequest], bool], skip: int, holds: int) -> Barrier:
        barrier, passed = Barrier(), 0

        async def rule(request: HttpRequest) -> HttpAnswer | None:
            nonlocal passed
            if matches(request):
                passed += 1
                if skip < passed <= skip + holds:
                    await barrier.hold()
            return None

        rules.append(rule)
        return barrier

    def answer(self, matches: Callable[[HttpRequest], bool], answer: HttpAnswer, times: int = _ALL) -> None:
        """Answer the first `times` matching requests in the server's place."""
        left = times

        async def rule(request: HttpRequest) -> HttpAnswer | None:
            nonlocal left
            if left > 0 and matches(request):
                left -= 1
                return answer
            return None

        self.rules.append(rule)

    def calm(self) -> None:
        """Forget every rule: from now on everything passes."""
        self.rules.clear()
        self.after.clear()

    def cut(self, matches: Callable[[HttpRequest], bool], times: int = _ALL) -> None:
        """Reset the connection of the first `times` matching requests."""
        left = times

        async def rule(request: HttpRequest) -> HttpAnswer | None:
            nonlocal left
            if left > 0 and matches(request):
                left -= 1
                raise Cut
            return None

        self.rules.append(rule)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HttpProxy"]:
        """Listen on a free port for as long as the context lasts."""
        async with _listening(self._serve) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader, writer)
        if request is None:
            return
        self.requests.append(request)
        answer = await _first(self.rules, request)
        if answer is None:
            # Forwarded even when the client has gone meanwhile, as a network does with what is under way.
            raw = await self._forward(request)
            answer_of_rule = await _first(self.after, request)
            encoded = raw if answer_of_rule is None else answer_of_rule.encoded()
        else:
            encoded = answer.encoded()
        writer.write(encoded)
        await writer.drain()

    async def _forward(self, request: HttpRequest) -> bytes:
        try:
            reader, writer = await asyncio.open_connection(*self._upstream)
        except OSError as error:
            raise Cut from error
        try:
            head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", request.head)
            head = re.sub(rb"(?i)\r\nexpect:[^\r]*", b"", head)
            writer.write(head[:-2] + b"Connection: close\r\n\r\n" + request.body)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


async def _first(rules: list[HttpRule], request: HttpRequest) -> HttpAnswer | None:
    for rule in list(rules):
        answer = await rule(request)
        if answer is not None:
            return answer
    return None


PostgresMatch = Callable[[str, str], bool]
"""Of a statement and the one before it on the same connection."""


class PostgresProxy:
    """Stands before PostgreSQL. A rule sees the text of each statement that is about to run."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._rules: list[tuple[PostgresMatch, Callable[[], Awaitable[None]]]] = []
        self.port = 0
        self.statements: list[str] = []
        self.open_connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self.refusing = False

    def hold(self, piece: str, skip: int = 0, after: str = "") -> Barrier:
        """Hold the statements that contain `piece` before the server sees them, after `skip` of them have passed.

        `after`: only where the statement before, on the same connection, contains this.
        """
        barrier, passed = Barrier(), 0

        async def stand() -> None:
            nonlocal passed
            passed += 1
            if passed > skip:
                await barrier.hold()

        self._rules.append((lambda statement, before: piece in statement and after in before, stand))
        return barrier

    def cut_all(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["PostgresProxy"]:
        """Listen on a free port for as long as the context lasts."""
        async with _listening(self._serve) as self.port:
            yield self

    def dsn(self, direct: str) -> str:
        """The address through here, from the address of the server itself."""
        parts = urlsplit(direct)
        return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}").geturl()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            raise Cut
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._upstream)
        except OSError as error:
            raise Cut from error
        self._writers |= {writer, server_writer}
        self.open_connections += 1
        try:
            async with asyncio.TaskGroup() as tasks:
                down = tasks.create_task(_pump(server_reader, writer))
                up = tasks.create_task(self._client_side(reader, server_writer))
                await asyncio.wait({down, up}, return_when=asyncio.FIRST_COMPLETED)
                down.cancel()
                up.cancel()
        finally:
            self.open_connections -= 1
            self._writers -= {writer, server_writer}
            server_writer.close()

    async def _client_side(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        named: dict[bytes, str] = {}
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            started, before = False, ""
            while True:
                kind = b"" if not started else await reader.readexactly(1)
                length = await reader.readexactly(4)
                body = await reader.readexactly(struct.unpack("!i", length)[0] - 4)
                if not started:
                    # SSLRequest and GSSENCRequest are refused by the server with one byte and asked before the start.
                    started = struct.unpack("!i", body[:4])[0] >> 16 == 3
                statement = _statement(kind, body, named)
                if statement is not None:
                    self.statements.append(statement)
                    for matches, stand in self._rules:
                        if matches(statement, before):
                            await stand()
                    before = statement
                server.write(kind + length + body)
                await server.drain()


def _statement(kind: bytes, body: bytes, named: dict[bytes, str]) -> str | None:
    """The text of the statement that a message runs: a simple query, or the binding of a prepared one."""
    if kind == b"Q":
        return body.rstrip(b"\0").decode("utf-8", "replace")
    if kind == b"P":
        name, text, _ = body.split(b"\0", 2)
        named[name] = text.decode("utf-8", "replace")
    if kind == b"B":
        _, name, _ = body.split(b"\0", 2)
        return named.get(name, "")
    return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def _listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (Cut, ConnectionError, asyncio.CancelledError):  # cancelled only by the end of the context below
            writer.transport.abort()
        finally:
            tasks.discard(task)
            with contextlib.suppress(ConnectionError, RuntimeError):
                writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 20)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def http_server(answer: Callable[[HttpRequest], Awaitable[HttpAnswer]]) -> AsyncIterator[int]:
    """A server on a free port that answers every request with `answer`, and cuts when it raises `Cut`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader, writer)) is not None:
            writer.write((await answer(request)).encoded())
            await writer.drain()
            return

    async with _listening(serve) as port:
        yield port
