"""How operators reach the database: by DATABASE_URL, or the local stack's, started for the moment when it is not up."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from services.cli.failures import Failure
from services.cli.local.postgres import LocalPostgres
from services.cli.local.services import LOGINS, PROJECT_FOLDER, SIGNING_SERVICES
from services.cli.local.state import StateFolder

DATABASE = "ninaku"
OPERATOR_LOGIN = "ninaku_migrator"
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class DatabaseAccess:
    """Addresses for one command. `admin_dsn` is the superuser's, and None unless a local stack was started for this."""

    operator_dsn: str
    admin_dsn: str | None
    passwords: dict[str, str]


@asynccontextmanager
async def database_access(state: StateFolder) -> AsyncIterator[DatabaseAccess]:
    """Access to the database of DATABASE_URL, or else to the local stack's, which is started when it is not running."""
    url = os.environ.get("DATABASE_URL")
    if url:
        yield DatabaseAccess(url, None, {})
        return
    ports = state.ports()
    secrets = state.secrets(LOGINS, SIGNING_SERVICES)
    postgres = LocalPostgres(state.postgres, ports.of("postgres"), die_with_parent=True)
    passwords = dict(secrets.database_passwords)
    if state.is_running():
        yield DatabaseAccess(postgres.dsn(OPERATOR_LOGIN, passwords[OPERATOR_LOGIN], DATABASE), None, passwords)
        return
    state.lock()
    try:
        async with postgres:
            yield DatabaseAccess(
                postgres.dsn(OPERATOR_LOGIN, passwords[OPERATOR_LOGIN], DATABASE), postgres.admin_dsn, passwords
            )
    finally:
        state.unlock()


async def connect(dsn: str) -> Any:
    """Connects, or says in words why not; the address itself, which holds a password, is never shown."""
    with explained():
        return await asyncpg.connect(dsn, timeout=_CONNECT_SECONDS)


@contextmanager
def explained() -> Iterator[None]:
    """Turns what goes wrong while connecting into words."""
    try:
        yield
    except asyncpg.InvalidCatalogNameError:
        raise Failure("This database does not exist yet. Create it: ninaku db create") from None
    except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError):
        raise Failure("The database does not accept this login and password.") from None
    except asyncpg.InsufficientPrivilegeError:
        raise Failure("This login may not do that. Is it the migrator's, or the server administrator's?") from None
    except (OSError, TimeoutError) as error:
        reason = type(error).__name__
        raise Failure(f"The database cannot be reached ({reason}). Is it up, and its address right?") from None
    except ValueError:
        raise Failure("The database's address is not of the form postgresql://login:password@host:port/name.") from None


def state_folder(path: Path | None) -> StateFolder:
    """The state folder of the given path; by default `.ninaku` in the folder of the project."""
    return StateFolder((path or PROJECT_FOLDER / ".ninaku").absolute())
