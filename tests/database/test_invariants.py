"""The audit of what must hold between rows: each rule, broken on purpose, is noticed; nothing else is reported."""

import pytest

from tests.database.arrange import claim, queue_upload, ready_asset, reserve
from tests.database.failure import (
    archived_asset,
    begin,
    claim_purge,
    dead_letter,
    finish,
    queue_purge,
    record_claim,
    violations,
)
from tests.support.database import Connection, DatabaseUnderTest, Person

_ONE = "(SELECT id FROM assets.assets WHERE status = 'ready' AND archived_at IS NULL)"
_DEAD = "state = 'dead_lettered'"
BROKEN = {
    "a counter": ("UPDATE assets.organization_usage SET stored_bytes = stored_bytes + 1", "usage_equals_rows"),
    "an object's row lost": (
        f"""DELETE FROM assets.storage_objects WHERE object_key LIKE '%/tile.webp' AND variant_id IN
            (SELECT id FROM assets.asset_variants WHERE asset_id = {_ONE});
            UPDATE assets.organization_usage SET stored_bytes = stored_bytes - 100 WHERE stored_bytes > 0""",
        "ready_asset_complete",
    ),
    "an object too many": (
        f"""INSERT INTO assets.storage_objects (id, organization_id, variant_id, provider_id, object_key, is_primary,
            available_at) SELECT gen_random_uuid(), o.organization_id, variant_id, provider_id, object_key || '2',
            false, now() FROM assets.storage_objects o WHERE variant_id IN (SELECT id FROM assets.asset_variants
            WHERE asset_id = {_ONE} AND variant_code = 'original')""",
        "ready_asset_complete",
    ),
    "an object under another token": (
        f"""UPDATE assets.storage_objects SET object_key = 'm/' || repeat('a', 26) || '/original.webp'
            WHERE variant_id IN (SELECT id FROM assets.asset_variants WHERE asset_id = {_ONE}
            AND variant_code = 'original')""",
        "objects_only_of_stored_assets",
    ),
    "a processing asset without a job": (
        "DELETE FROM assets.processing_jobs WHERE state = 'pending'", "unsettled_asset_has_work"
    ),
    "a purging asset without a job": (
        "UPDATE assets.assets SET status = 'purging' WHERE archived_at IS NOT NULL", "unsettled_asset_has_work"
    ),
    "an open upload of a settled asset": (
        """UPDATE assets.uploads SET state = 'received', settled_at = NULL, rejection_code = NULL
            WHERE state = 'rejected';
            UPDATE assets.organization_usage SET reserved_bytes = reserved_bytes + 1000 WHERE reserved_bytes > 0""",
        "unsettled_asset_has_work",
    ),
    "a dead letter without a reason": (
        f"UPDATE assets.processing_jobs SET last_error_code = NULL WHERE {_DEAD}", "dead_letter_has_reason"
    ),
    "a claim on a purging asset": (
        """UPDATE assets.assets SET archived_at = now(), status = 'purging'
            WHERE id IN (SELECT asset_id FROM assets.asset_claims);
            INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, available_at)
            SELECT gen_random_uuid(), organization_id, asset_id, 'purge_asset', now() + interval '1 hour'
            FROM assets.asset_claims;
            UPDATE assets.organization_usage SET active_asset_count = active_asset_count - 1
            WHERE active_asset_count > 0""",
        "purging_asset_unclaimed",
    ),
    "a write recorded twice": (
        """INSERT INTO audit.records (organization_id, service, action_code, resource_kind, resource_id, outcome)
            SELECT organization_id, service, action_code, resource_kind, resource_id, outcome FROM audit.records
            WHERE action_code = 'assets.asset.archived' AND resource_id IN (SELECT id FROM assets.assets)""",
        "one_audit_record_per_change",
    ),
    "a purge recorded twice": (
        """INSERT INTO audit.records (organization_id, service, action_code, resource_kind, resource_id, outcome)
            SELECT organization_id, service, action_code, resource_kind, resource_id, outcome FROM audit.records
            WHERE action_code = 'assets.asset.purged'""",
        "one_receipt_per_purge",
    ),
    "a receipt lost": ("DELETE FROM assets.purge_receipts", "one_receipt_per_purge"),
}  # fmt: skip


@pytest.fixture
async def busy(owner: Connection, admission: Connection, worker: Connection, ana: Person) -> None:
    """One asset in every state that there is, one purged, one claimed, one given up."""
    await dead_letter(owner, admission, worker, ana)
    await record_claim(owner, ana, await ready_asset(admission, worker, ana))
    purged = await archived_asset(admission, worker, ana)
    await queue_purge(owner, purged)
    job = await claim_purge(worker)
    await begin(worker, job)
    await finish(worker, job)
    await archived_asset(admission, worker, ana)
    await reserve(admission, ana)
    await queue_upload(admission, ana)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("case", BROKEN)
async def test_each_invariant_that_is_broken_on_purpose_is_noticed_and_no_other(
    database: DatabaseUnderTest, owner: Connection, case: str
) -> None:
    statement, invariant = BROKEN[case]
    assert await violations(owner) == []
    await owner.execute(f"BEGIN; ALTER TABLE assets.assets DISABLE TRIGGER assets_guard_status; {statement}; COMMIT")
    assert set(await violations(owner)) == {invariant}
    row = await owner.fetchrow("SELECT * FROM assets.audit_invariants()")
    assert row["organization_id"] is not None
    assert row["subject_id"] is not None
    assert row["detail"]


async def test_once_everything_is_settled_no_job_may_be_open_and_due(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    await queue_upload(admission, ana)
    assert await violations(owner) == []
    assert await violations(owner, settled=True) == ["no_job_is_overdue"]
    job = await claim(worker)
    assert await violations(owner, settled=True) == ["no_job_is_overdue"]
    await worker.fetchval(
        "SELECT assets.record_processing_outcome($1, $2, 'retry_storage', 'assets.storage_unavailable',"
        " now() + interval '1 minute', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        job["job_id"],
        job["lease_token"],
    )
    assert await violations(owner, settled=True) == []
