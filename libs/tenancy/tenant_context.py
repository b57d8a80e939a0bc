"""The transaction in which a person's work is done: context opened first, denials recorded after the rollback."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import asyncpg
import structlog

from libs.database.engine import Database
from libs.errors.refusal import Refusal
from libs.tenancy.callers import UserCaller

_OPEN: Final = "SELECT outcome, membership_id FROM identity.open_tenant_context($1, $2, $3, $4, $5, $6)"
_RECORD_DENIAL: Final = "SELECT audit.record_denial($1, $2, $3, $4, $5, $6, $7, $8, $9)"

_RECORDED: Final = frozenset({"forbidden", "not_entitled", "context_rejected"})
_CODES: Final = MappingProxyType(
    {
        "unauthenticated": "identity.unauthenticated",
        "context_rejected": "tenant.context_rejected",
        "not_entitled": "platform.capability_not_entitled",
    }
)


@dataclass(frozen=True, slots=True)
class Action:
    """What somebody wants to do, for the decision and for the record of a denial."""

    code: str
    """The audited action, for example ``assets.asset.upload_requested``."""
    permission: str
    """The permission it takes, held organization-wide."""
    resource_kind: str
    """The audited kind of the resource, for example ``assets.asset``."""
    forbidden_code: str
    """The public code of a missing permission, for example ``assets.action_forbidden``."""
    capability: str | None = None
    """The plan's capability it takes; None when it is never gated."""


class TenantAccess:
    """Opens tenant contexts for one service.

    Args:
        database: The service's own login.
        service: Its name in audit records.
    """

    def __init__(self, database: Database, service: str) -> None:
        """Keep both."""
        self._database = database
        self._service = service
        self._log: Any = structlog.stdlib.get_logger("ninaku.tenancy")

    @asynccontextmanager
    async def transaction(
        self, caller: UserCaller, action: Action, request_id: str, resource_id: uuid.UUID | None = None
    ) -> AsyncIterator[tuple[asyncpg.Connection, uuid.UUID]]:
        """Lend a transaction whose tenant context is open, and the acting membership.

        Raises:
            Refusal: The caller may not; what had begun is rolled back and the denial is on record.
        """
        outcome = "authorized"
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                _OPEN,
                caller.token_hash,
                caller.organization_id,
                action.permission,
                action.capability,
                self._service,
                request_id,
            )
            if row["outcome"] == "authorized":
                yield connection, row["membership_id"]
                return
            outcome = row["outcome"]
            # Leaving without work commits nothing but the session's last use.
        raise await self.denied(caller, action, outcome, request_id, resource_id)

    async def denied(
        self, caller: UserCaller, action: Action, outcome: str, request_id: str, resource_id: uuid.UUID | None = None
    ) -> Refusal:
        """Record a denial in a transaction of its own and return its refusal.

        When the record cannot be written the caller is refused all the same, and the failure is in the log.
        """
        if outcome in _RECORDED:
            try:
                async with self._database.connection() as connection:
                    await connection.execute(
                        _RECORD_DENIAL,
                        caller.token_hash,
                        caller.organization_id,
                        action.permission,
                        action.code,
                        action.resource_kind,
                        resource_id,
                        outcome,
                        self._service,
                        request_id,
                    )
            except Exception as error:
                self._log.error("denial not recorded", action=action.code, outcome=outcome, exc_info=error)
        return Refusal(action.forbidden_code if outcome == "forbidden" else _CODES[outcome])
