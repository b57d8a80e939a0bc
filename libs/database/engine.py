"""The pool and the transaction.

SQLAlchemy's engine holds the connections; a fixed call of a function goes straight through its asyncpg connection,
since Core costs as much again as the statement. asyncpg keeps each statement prepared, per connection.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from libs.database.errors import DRIVER_ERRORS, DatabaseUnavailable, broke_connection, domain_error

CONNECT_TIMEOUT_SECONDS: Final = 5.0
POOL_TIMEOUT_SECONDS: Final = 5.0
STATEMENT_TIMEOUT_MS: Final = 5_000
IDLE_IN_TRANSACTION_TIMEOUT_MS: Final = 15_000


class Database:
    """The connections of one process under its own login.

    Args:
        engine: Made by `create_database`.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        """Keep the engine; nothing connects before the first use."""
        self._engine = engine

    @property
    def engine(self) -> AsyncEngine:
        """The engine itself, for reads that are built with SQLAlchemy Core."""
        return self._engine

    async def read_row(self, statement: str, *arguments: Any) -> asyncpg.Record | None:
        """Run one statement that changes nothing (or that may be repeated), and return its first row.

        It is tried once more when the connection breaks under it, as all do when PostgreSQL restarts.

        Raises:
            DatabaseUnavailable: It cannot answer now.
            DatabaseError: The statement was refused.
        """
        try:
            return await self._row(statement, arguments)
        except DatabaseUnavailable as unavailable:
            if not unavailable.connection_lost:
                raise
        return await self._row(statement, arguments)

    async def read_rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement that changes nothing (or that may be repeated), and return all its rows, as `read_row`."""
        try:
            return await self._rows(statement, arguments)
        except DatabaseUnavailable as unavailable:
            if not unavailable.connection_lost:
                raise
        return await self._rows(statement, arguments)

    async def _row(self, statement: str, arguments: tuple[Any, ...]) -> asyncpg.Record | None:
        async with self.connection() as connection:
            return await connection.fetchrow(statement, *arguments)

    async def _rows(self, statement: str, arguments: tuple[Any, ...]) -> list[asyncpg.Record]:
        async with self.connection() as connection:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
            return rows

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """Lend an asyncpg connection outside of any transaction: each statement commits by itself.

        Raises:
            DatabaseUnavailable: No connection within 5 s, or it cannot answer now.
            DatabaseError: A statement was refused.
        """
        lent = await self._check_out()
        try:
            yield lent.connection
        except DRIVER_ERRORS as error:
            raise lent.judge(error) from None
        finally:
            lent.give_back()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """Lend an asyncpg connection inside a READ COMMITTED transaction: committed at the end, or rolled back.

        Raises:
            DatabaseUnavailable: No connection, it broke, or the database cannot answer now. When the commit was under
                way the outcome is unknown; writes are safe to repeat, by their idempotency keys.
            DatabaseError: A statement was refused; everything is rolled back.
        """
        lent = await self._begin()
        try:
            try:
                yield lent.connection
            except BaseException as error:
                if not lent.is_broken(error):
                    await lent.connection.execute("ROLLBACK")
                raise
            await lent.connection.execute("COMMIT")
        except DRIVER_ERRORS as error:
            raise lent.judge(error) from None
        finally:
            lent.give_back()

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    async def _begin(self) -> "_Lent":
        for last in (False, True):
            lent = await self._check_out()
            try:
                await lent.connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            except BaseException as error:
                # Nothing was done yet, so a connection that broke while it lay in the pool is worth another try.
                again = lent.is_broken(error) and not last
                lent.give_back()
                if again:
                    continue
                if isinstance(error, DRIVER_ERRORS):
                    raise lent.judge(error) from None
                raise
            return lent
        raise AssertionError("the second try returns or raises")

    async def _check_out(self) -> "_Lent":
        try:
            while True:
                lent = _Lent(await self._engine.raw_connection())
                if not lent.connection.is_closed():
                    return lent
                # PostgreSQL went away while the connection lay in the pool: seen without asking it.
                lent.give_back()
        except DRIVER_ERRORS as error:
            raise domain_error(error) from None


class _Lent:
    """A connection out of the pool, and whether it may go back."""

    __slots__ = ("_broken", "_pooled", "connection")

    def __init__(self, pooled: Any) -> None:
        self._pooled = pooled
        self._broken = False
        self.connection: asyncpg.Connection = pooled.driver_connection

    def is_broken(self, error: BaseException) -> bool:
        """Whether nothing more can be asked of it after `error`."""
        self._broken = self._broken or self.connection.is_closed() or (_is_drivers(error) and broke_connection(error))
        return self._broken

    def judge(self, error: BaseException) -> BaseException:
        """Return the domain's error for one of `DRIVER_ERRORS`; an OSError that it survived stays itself."""
        broken = self.is_broken(error)
        if isinstance(error, (OSError, TimeoutError)) and not broken:
            return error
        # The driver's own text can hold values of rows, so the caller raises this `from None`.
        return domain_error(error, connection_lost=broken)

    def give_back(self) -> None:
        """Return it; one that is broken, or was left in the middle by a cancelled statement, is never lent again."""
        if self._broken or self.connection.is_closed() or self.connection.is_in_transaction():
            self._pooled.invalidate()
        else:
            self._pooled.close()


def _is_drivers(error: BaseException) -> bool:
    return isinstance(error, DRIVER_ERRORS) and not isinstance(error, (OSError, TimeoutError))


def create_database(url: str, *, pool_size: int, application_name: str) -> Database:
    """Return the database at `url` (``postgresql://...``) with at most `pool_size` connections.

    Every connection has a statement timeout of 5 s, and 15 s for a transaction in which nothing happens. The pool does
    not reset a connection that comes back: `Database` never gives one back inside a transaction, and the tenant context
    is local to the transaction.
    """
    _, separator, address = url.partition("://")
    if not separator:
        raise ValueError("the database URL has no scheme")
    engine = create_async_engine(
        f"postgresql+asyncpg://{address}",
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_SECONDS,
        pool_reset_on_return=None,
        pool_use_lifo=True,
        pool_recycle=1_800,
        connect_args={
            "timeout": CONNECT_TIMEOUT_SECONDS,
            "server_settings": {
                "application_name": application_name,
                "statement_timeout": str(STATEMENT_TIMEOUT_MS),
                "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_TIMEOUT_MS),
                "jit": "off",
            },
        },
    )
    return Database(engine)
