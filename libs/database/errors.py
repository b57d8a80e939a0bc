"""What PostgreSQL can answer besides rows, read by SQLSTATE and constraint name only."""

from typing import Final

import asyncpg
from sqlalchemy import exc

from libs.errors.refusal import Refusal

CHECK_VIOLATION: Final = "23514"
"""How our functions refuse: with the named constraint in the diagnostics."""
FOREIGN_KEY_VIOLATION: Final = "23503"

_PASSING_STATES: Final = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available
        "57014",  # query_canceled: the statement timeout
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
        "25P03",  # idle_in_transaction_session_timeout
    }
)
_ENDS_SESSION: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
_PASSING_CLASSES: Final = frozenset({"08", "53"})  # connection exception, insufficient resources


class DatabaseUnavailable(Refusal):
    """The database cannot answer right now; the same request may work in a moment. `foundation.unavailable`.

    `connection_lost` is true when the connection broke under the work.
    """

    def __init__(self, *, connection_lost: bool = False) -> None:
        """Refuse with the one code that says so."""
        super().__init__("foundation.unavailable")
        self.connection_lost = connection_lost


class DatabaseError(Exception):
    """A statement was refused.

    It carries neither message nor detail of the server: those can hold values of rows, and this travels into logs.
    """

    def __init__(self, sqlstate: str, constraint: str | None) -> None:
        """Keep what may be written down."""
        super().__init__(f"SQLSTATE {sqlstate}" + (f", constraint {constraint}" if constraint else ""))
        self.sqlstate = sqlstate
        self.constraint = constraint


DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    exc.SQLAlchemyError,
    OSError,
    TimeoutError,
)
"""All that the driver and the pool raise."""


def broke_connection(error: BaseException) -> bool:
    """Whether the connection is of no use after this error of the driver."""
    if isinstance(error, asyncpg.PostgresError):
        sqlstate = error.sqlstate or ""
        return sqlstate[:2] == "08" or sqlstate in _ENDS_SESSION
    return isinstance(error, DRIVER_ERRORS)


def domain_error(error: BaseException, *, connection_lost: bool = False) -> DatabaseUnavailable | DatabaseError:
    """Return what an error of the driver or the pool (one of `DRIVER_ERRORS`) means."""
    if isinstance(error, asyncpg.PostgresError):
        sqlstate: str = error.sqlstate or "XX000"
        if sqlstate not in _PASSING_STATES and sqlstate[:2] not in _PASSING_CLASSES:
            return DatabaseError(sqlstate, error.constraint_name)
    return DatabaseUnavailable(connection_lost=connection_lost)
