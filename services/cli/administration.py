"""What operators do to tenants, people and plans: one method per SQL function, refusals in words."""

import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from libs.tenancy.callers import hash_session_token
from services.cli.failures import Failure
from services.cli.local.state import StateFolder
from services.cli.operators import connect, database_access

_TOKEN_BYTES: Final = 32

_NAME: Final = "A name is 1 to 255 characters, without line breaks or other control characters."
# SQLSTATE and constraint name, never the server's words (DESIGN D4).
_REFUSALS: Final[Mapping[str, str]] = {
    "role_unknown": "There is no such role. The roles are organization_owner, manager, cashier and waiter.",
    "user_unknown": "There is no active user with this e-mail address. Make one: ninaku member add",
    "organizations_name_chk": _NAME,
    "business_units_name_chk": _NAME,
    "actors_display_name_chk": _NAME,
    "users_email_chk": "This is not an e-mail address.",
    "plan_unknown": "There is no such plan, or no published version of that number. See: ninaku plan list",
    "plan_limits_shape": "Name a value for every limit.",
    "assets_requeue_batch": "Name 1 to 500 jobs at once.",
}
_UNKNOWN_REFERENCES: Final[Mapping[str, str]] = {
    "memberships": "There is no organization with this id. See: ninaku organization list",
    "subscriptions": "There is no organization with this id. See: ninaku organization list",
    "business_units": "There is no organization with this id. See: ninaku organization list",
    "membership_roles": "This organization has no such business unit.",
    "plan_version_capabilities": "There is no such capability. See: ninaku plan list",
    "plan_version_limits": "There is no such limit. See: ninaku plan list",
}


@dataclass(frozen=True)
class Organization:
    """A tenant and the plan it has; `entitled` is false when the subscription lapsed."""

    id: UUID
    name: str
    plan: str | None
    entitled: bool
    active_assets: int
    stored_bytes: int


@dataclass(frozen=True)
class Member:
    """A role that a member holds: organization-wide when `business_unit` is None."""

    membership_id: UUID
    email: str
    display_name: str
    status: str
    role: str | None
    business_unit: str | None


@dataclass(frozen=True)
class Session:
    """A session; its token is known to whoever was given it and to nobody else."""

    id: UUID
    email: str
    created_at: datetime
    last_seen_at: datetime
    lives: bool


@dataclass(frozen=True)
class PlanVersion:
    """One version of a plan. A limit of None means unlimited."""

    plan: str
    version: int
    status: str
    capabilities: tuple[str, ...]
    limits: Mapping[str, int | None]
    organizations: int


class Administration:
    """The operator's SQL functions over one asyncpg connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def create_organization(self, name: str, plan: str | None) -> UUID:
        """Creates a tenant with the active version of a plan; not idempotent, names may repeat."""
        return UUID(str(await self._value("SELECT identity.create_organization($1, $2)", name, plan)))

    async def organizations(self) -> list[Organization]:
        """Every tenant, oldest first."""
        rows = await self._rows("SELECT * FROM identity.list_organizations()")
        return [
            Organization(
                id=row["organization_id"],
                name=row["name"],
                plan=None if row["plan_code"] is None else f"{row['plan_code']} {row['version_number']}",
                entitled=row["entitled"],
                active_assets=row["active_asset_count"] or 0,
                stored_bytes=row["stored_bytes"] or 0,
            )
            for row in rows
        ]

    async def create_business_unit(self, organization_id: UUID, name: str) -> UUID:
        """Creates a business unit, or finds the one of that name."""
        return UUID(str(await self._value("SELECT organization.create_business_unit($1, $2)", organization_id, name)))

    async def add_member(
        self, organization_id: UUID, email: str, display_name: str, role: str, business_unit_id: UUID | None
    ) -> UUID:
        """Gives a person a role, making user and membership where they are new; the membership's id. Idempotent."""
        query = "SELECT membership_id FROM identity.add_member($1, $2, $3, $4, $5)"
        return UUID(str(await self._value(query, organization_id, email, display_name, role, business_unit_id)))

    async def members(self, organization_id: UUID) -> list[Member]:
        """The roles held in an organization."""
        rows = await self._rows("SELECT * FROM identity.list_members($1)", organization_id)
        return [
            Member(
                row["membership_id"],
                row["email"],
                row["display_name"],
                row["status"],
                row["role_code"],
                row["business_unit_name"],
            )
            for row in rows
        ]

    async def create_session(self, email: str) -> tuple[UUID, str]:
        """A new session: its id, and the token, which is kept nowhere."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        session_id = await self._value("SELECT identity.create_session($1, $2)", email, hash_session_token(token))
        return UUID(str(session_id)), token

    async def sessions(self, email: str | None) -> list[Session]:
        """Sessions of one person or of all, newest first."""
        rows = await self._rows("SELECT * FROM identity.list_sessions($1)", email)
        return [
            Session(row["session_id"], row["email"], row["created_at"], row["last_seen_at"], row["lives"])
            for row in rows
        ]

    async def revoke_session(self, session_id: UUID) -> bool:
        """Ends a session at once; whether it was not revoked before."""
        return bool(await self._value("SELECT identity.revoke_session($1)", session_id))

    async def revoke_sessions_of(self, email: str) -> int:
        """Ends every session of a person; how many were not revoked before."""
        return int(await self._value("SELECT identity.revoke_user_sessions($1)", email))

    async def plans(self) -> list[PlanVersion]:
        """Every plan version, newest first within its plan."""
        rows = await self._rows("SELECT * FROM platform.list_plans()")
        return [
            PlanVersion(
                plan=row["plan_code"],
                version=row["version_number"],
                status=row["status"],
                capabilities=tuple(row["capabilities"]),
                limits=json.loads(row["limits"]),
                organizations=row["subscriptions"],
            )
            for row in rows
        ]

    async def publish_plan(self, plan: str, capabilities: Sequence[str], limits: Mapping[str, int | None]) -> int:
        """Publishes the next version of a plan; the active number, unchanged when nothing new was asked for."""
        query = "SELECT platform.publish_plan_version($1, $2, $3, $4)"
        return int(await self._value(query, plan, list(capabilities), list(limits), list(limits.values())))

    async def move_subscription(self, organization_id: UUID, plan: str, version: int | None) -> UUID:
        """Gives an organization a version of a plan, the active one by default. Idempotent."""
        query = "SELECT platform.move_subscription($1, $2, $3)"
        return UUID(str(await self._value(query, organization_id, plan, version)))

    async def _value(self, query: str, *arguments: object) -> Any:
        with refusals():
            return await self._connection.fetchval(query, *arguments)

    async def _rows(self, query: str, *arguments: object) -> Any:
        with refusals():
            return await self._connection.fetch(query, *arguments)


@contextmanager
def refusals() -> Iterator[None]:
    """Turns what the database refuses into words."""
    try:
        yield
    except asyncpg.PostgresError as error:
        words = _words(error)
        if words is None:
            raise
        raise Failure(words) from error


def _words(error: asyncpg.PostgresError) -> str | None:
    if error.sqlstate == "23514":
        return _REFUSALS.get(error.constraint_name or "", f"The database refuses this: {error.constraint_name}.")
    if error.constraint_name == "assets_asset_referenced":
        return "Something that is no claim still refers to this asset, so nothing was changed. Remove that first."
    if error.sqlstate == "23503":
        return _UNKNOWN_REFERENCES.get(error.table_name or "", "Something named here does not exist.")
    if error.sqlstate == "42501":
        return "This login may not do that. Is DATABASE_URL the migrator's?"
    if error.sqlstate in {"42883", "42P01", "3F000"}:
        return "This database has no schema, or an older one than this command. See: ninaku db status"
    if error.sqlstate == "22001":
        return "One of the values is too long."
    if error.sqlstate[:2] == "22":  # also what is refused on this side of the wire
        return "One of the values is too large, or holds characters that a text cannot have."
    return None


@asynccontextmanager
async def administration(state: StateFolder) -> AsyncIterator[Administration]:
    """The operator's functions on the database of DATABASE_URL or of the local stack."""
    async with database_access(state) as access, administration_at(access.operator_dsn) as found:
        yield found


@asynccontextmanager
async def administration_at(dsn: str) -> AsyncIterator[Administration]:
    """The operator's functions on the database at `dsn`."""
    connection = await connect(dsn)
    try:
        yield Administration(connection)
    finally:
        await connection.close()
