"""The pool and the transaction: what survives cancellation, refusal and a restart of PostgreSQL."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from libs.database.engine import Database, create_database
from libs.database.errors import DatabaseError, DatabaseUnavailable
from libs.errors.refusal import Refusal
from tests.support.database import Connection, DatabaseUnderTest

LOGIN = "ninaku_library"


@pytest.fixture
async def pool(database: DatabaseUnderTest) -> AsyncIterator[Database]:
    created = create_database(database.dsn(LOGIN), pool_size=4, application_name="pool-under-test")
    yield created
    await created.close()


async def backends(owner: Connection) -> int:
    count: int = await owner.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pool-under-test'"
    )
    return count


@contextlib.asynccontextmanager
async def superuser(database: DatabaseUnderTest) -> AsyncIterator[Connection]:
    admin = await asyncpg.connect(database.server.admin_dsn)
    try:
        yield admin
    finally:
        await admin.close()


async def end_all_backends(database: DatabaseUnderTest) -> None:
    async with superuser(database) as admin:
        await admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'pool-under-test'"
        )


async def fill(pool: Database) -> None:
    await asyncio.gather(*(pool.read_row("SELECT pg_sleep(0.05)") for _ in range(4)))


async def test_a_transaction_commits_at_its_end_in_read_committed(pool: Database, owner: Connection) -> None:
    async with pool.transaction() as connection:
        assert await connection.fetchval("SHOW transaction_isolation") == "read committed"
        first = await connection.fetchval("SELECT pg_current_xact_id()::text")
        assert await connection.fetchval("SELECT pg_current_xact_id()::text") == first

    assert await owner.fetchval("SELECT pg_xact_status($1::text::xid8)", first) == "committed"


@pytest.mark.parametrize(
    "error", [ValueError("mine"), OSError("mine"), TimeoutError("mine"), Refusal("assets.not_found")]
)
async def test_any_error_inside_rolls_back_and_stays_itself(
    pool: Database, owner: Connection, error: Exception
) -> None:
    transaction = ""

    async def work() -> None:
        nonlocal transaction
        async with pool.transaction() as connection:
            transaction = await connection.fetchval("SELECT pg_current_xact_id()::text")
            raise error

    with pytest.raises(type(error)) as caught:
        await work()

    assert caught.value is error
    assert await owner.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction) == "aborted"
    assert (await pool.read_row("SELECT 1 AS one") or {})["one"] == 1


async def test_a_refused_statement_has_state_and_constraint_and_none_of_the_servers_text(pool: Database) -> None:
    with pytest.raises(DatabaseError) as caught:
        async with pool.transaction() as connection:
            await connection.execute(
                "DO $$ BEGIN RAISE 'secret' USING ERRCODE = '23514', CONSTRAINT = 'a_chk', DETAIL = 'secret'; END $$"
            )

    assert (caught.value.sqlstate, caught.value.constraint) == ("23514", "a_chk")
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__, "a traceback must not show the server's text"


async def test_a_cancelled_transaction_is_rolled_back_and_its_connection_is_good_again(
    pool: Database, owner: Connection
) -> None:
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with pool.transaction() as connection:
            begun.set_result(await connection.fetchval("SELECT pg_current_xact_id()::text"))
            await connection.fetchval("SELECT pg_sleep(30)")

    task = asyncio.ensure_future(work())
    transaction = await begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await owner.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction) == "aborted"
    for _ in range(8):
        async with pool.connection() as connection:
            assert not connection.is_in_transaction()
            assert await connection.fetchval("SELECT 1") == 1


async def test_reads_and_new_transactions_go_on_after_every_connection_was_cut(
    pool: Database, database: DatabaseUnderTest, owner: Connection
) -> None:
    await fill(pool)
    assert await backends(owner) == 4
    await end_all_backends(database)

    rows = await asyncio.gather(*(pool.read_row("SELECT 1 AS one") for _ in range(8)))
    assert [row["one"] for row in rows if row is not None] == [1] * 8

    await fill(pool)
    await end_all_backends(database)
    async with pool.transaction() as connection:
        assert await connection.fetchval("SELECT 2") == 2


async def test_a_transaction_that_is_cut_in_the_middle_is_unavailable_and_never_repeated(
    pool: Database, database: DatabaseUnderTest
) -> None:
    bodies = 0

    async def work() -> None:
        nonlocal bodies
        async with pool.transaction() as connection:
            bodies += 1
            await connection.fetchval("SELECT 1")
            await end_all_backends(database)
            await connection.fetchval("SELECT 2")

    with pytest.raises(DatabaseUnavailable) as caught:
        await work()

    assert (bodies, caught.value.code, caught.value.connection_lost) == (1, "foundation.unavailable", True)
    assert await pool.read_row("SELECT 1") is not None


async def test_a_read_that_is_cut_while_it_runs_is_tried_once_more(pool: Database, database: DatabaseUnderTest) -> None:
    await fill(pool)
    read = asyncio.ensure_future(pool.read_row("SELECT pg_sleep(1), 7 AS seven"))
    async with superuser(database) as admin:
        while not await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pool-under-test' AND state = 'active'"
        ):
            await asyncio.sleep(0.01)
    await end_all_backends(database)

    assert (await read or {})["seven"] == 7


async def test_a_statement_that_takes_too_long_is_unavailable(pool: Database) -> None:
    async with pool.connection() as connection:
        assert await connection.fetchval("SHOW statement_timeout") == "5s"
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "15s"

    async def work() -> None:
        async with pool.connection() as connection:
            await connection.execute("SET statement_timeout = '20ms'")
            await connection.execute("SELECT pg_sleep(5)")

    with pytest.raises(DatabaseUnavailable):
        await work()


async def test_a_database_that_is_not_there_is_unavailable() -> None:
    nowhere = create_database("postgresql://a:b@127.0.0.1:1/c", pool_size=1, application_name="x")
    with pytest.raises(DatabaseUnavailable):
        await nowhere.read_row("SELECT 1")
    with pytest.raises(DatabaseUnavailable):
        async with nowhere.transaction():
            pass
    await nowhere.close()


async def test_a_wrong_password_is_an_error_that_does_not_tell_it(database: DatabaseUnderTest) -> None:
    stranger = create_database(database.server.dsn(LOGIN, "hunter2", database.name), pool_size=1, application_name="x")
    with pytest.raises((DatabaseUnavailable, DatabaseError)) as caught:
        await stranger.read_row("SELECT 1")
    await stranger.close()

    assert "hunter2" not in repr(caught.value)


async def test_no_more_connections_are_opened_than_the_pool_has(pool: Database, owner: Connection) -> None:
    await asyncio.gather(*(pool.read_row("SELECT pg_sleep(0.02)") for _ in range(40)))

    assert await backends(owner) == 4


async def test_no_connection_is_lost_to_work_that_is_cancelled_at_any_moment(pool: Database) -> None:
    async def work() -> None:
        async with pool.transaction() as connection:
            await connection.fetchval("SELECT pg_sleep(0.005)")

    for turn in range(60):
        task = asyncio.ensure_future(work())
        await asyncio.sleep(turn / 5_000)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async with asyncio.timeout(20):
        await asyncio.gather(*(work() for _ in range(16)))
    assert "Current Checked out connections: 0" in pool.engine.pool.status()
