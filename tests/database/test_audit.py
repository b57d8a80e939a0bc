"""Audit records: part of the write, append-only, and denials apart."""

from uuid import uuid4

import pytest

from tests.database.arrange import intent, open_context, refused, reserve, reserve_in
from tests.support.database import Connection, Person


@pytest.mark.parametrize(
    "statement", ["UPDATE audit.records SET service = 'x'", "DELETE FROM audit.records", "TRUNCATE audit.records"]
)
async def test_refuses_changing_deleting_or_truncating_records_even_for_the_owner(
    owner: Connection, admission: Connection, ana: Person, statement: str
) -> None:
    await reserve(admission, ana)
    with refused("audit_records_append_only"):
        await owner.execute(statement)
    assert await owner.fetchval("SELECT count(*) FROM audit.records") == 1


async def test_a_write_that_is_rolled_back_leaves_no_record(
    owner: Connection, admission: Connection, ana: Person
) -> None:
    transaction = admission.transaction()
    await transaction.start()
    await open_context(admission, ana)
    assert (await reserve_in(admission, intent()))["outcome"] == "created"
    await transaction.rollback()
    assert await owner.fetchval("SELECT count(*) FROM audit.records") == 0


_DENY = "SELECT audit.record_denial($1, $2, 'assets.media.manage', $3, 'assets.asset', $4, $5, 'admission', $6)"


async def test_records_a_denial_for_the_member_and_outside_the_organization_for_others(
    owner: Connection, admission: Connection, ana: Person, bruno: Person
) -> None:
    action, resource = "assets.asset.upload_requested", uuid4()
    await admission.execute(_DENY, ana.token_hash, ana.organization_id, action, resource, "forbidden", "r-1\r\nX: y")
    await admission.execute(_DENY, bruno.token_hash, ana.organization_id, action, None, "context_rejected", "r" * 500)
    await admission.execute(_DENY, bytes(32), ana.organization_id, action, None, "unauthenticated", "r-3")
    rows = await owner.fetch(
        """SELECT organization_id, actor_id, outcome, authorization_decision, permission_code, resource_id, request_id
        FROM audit.records ORDER BY recorded_at, id"""
    )
    assert [tuple(row.values()) for row in rows] == [
        (ana.organization_id, ana.actor_id, "denied", "forbidden", "assets.media.manage", resource, "r-1X:y"),
        (None, bruno.actor_id, "denied", "context_rejected", "assets.media.manage", None, "r" * 128),
    ]


async def test_refuses_denials_of_unregistered_actions_and_of_what_was_authorized(
    owner: Connection, admission: Connection, ana: Person
) -> None:
    with refused("records_action_code_fkey", "23503"):
        await admission.execute(_DENY, ana.token_hash, ana.organization_id, "no.such", None, "forbidden", None)
    with refused("records_outcome_decision_chk"):
        await admission.execute(
            _DENY, ana.token_hash, ana.organization_id, "assets.asset.viewed", None, "authorized", None
        )
    assert await owner.fetchval("SELECT count(*) FROM audit.records") == 0
