"""Steps of the tests about what was given up, purged and erased."""

from typing import Any
from uuid import UUID

from tests.database.arrange import acting, claim, intent, queue_upload, ready_asset, record
from tests.support.database import Connection, Person


async def dead_letter(
    owner: Connection, admission: Connection, worker: Connection, person: Person, byte_size: int = 1000
) -> Any:
    """An upload whose job failed five times; the job's last claim."""
    reserved = await queue_upload(admission, person, intent(byte_size=byte_size))
    job: Any = None
    for _ in range(5):
        await owner.execute(
            "UPDATE assets.processing_jobs SET available_at = now() WHERE asset_id = $1 AND state = 'pending'",
            reserved["asset_id"],
        )
        job = await claim(worker)
        assert job["asset_id"] == reserved["asset_id"]
        await record(worker, job, "retry_processing", "assets.processing_error", minutes=0.1)
    return job


async def archived_asset(admission: Connection, worker: Connection, person: Person) -> UUID:
    """A ready asset, archived now."""
    asset_id = await ready_asset(admission, worker, person)
    async with acting(admission, person):
        assert await admission.fetchval("SELECT assets.archive_asset($1)", asset_id) == "archived"
    return asset_id


async def age_archival(owner: Connection, asset_id: UUID, days: float) -> None:
    """The asset was archived that long ago, and made before that."""
    await owner.execute(
        "UPDATE assets.assets SET created_at = created_at - make_interval(days => 400),"
        " archived_at = now() - make_interval(secs => $2 * 86400) WHERE id = $1",
        asset_id,
        days,
    )


async def queue_purge(owner: Connection, asset_id: UUID) -> None:
    await owner.execute(
        "INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind)"
        " SELECT uuidv7(), organization_id, id, 'purge_asset' FROM assets.assets WHERE id = $1",
        asset_id,
    )


async def claim_purge(worker: Connection) -> Any:
    return await claim(worker, kinds=("purge_asset",))


async def begin(worker: Connection, job: Any) -> Any:
    return await worker.fetchrow("SELECT * FROM assets.purge_asset_begin($1, $2)", job["job_id"], job["lease_token"])


async def finish(worker: Connection, job: Any) -> str:
    answer: str = await worker.fetchval("SELECT assets.purge_asset_finish($1, $2)", job["job_id"], job["lease_token"])
    return answer


async def record_claim(
    owner: Connection, person: Person, asset_id: UUID, reference: str = "item-1", revision: int = 1
) -> str:
    answer: str = await owner.fetchval(
        "SELECT assets.record_claim('catalog', $1, $2, $3, $4)", person.organization_id, reference, revision, asset_id
    )
    return answer


async def requeue(owner: Connection, *job_ids: UUID) -> list[tuple[str, str | None]]:
    rows = await owner.fetch("SELECT * FROM assets.requeue_dead_letters($1)", list(job_ids))
    return [(row["outcome"], row["reason"]) for row in rows]


async def everything(owner: Connection) -> dict[str, list[Any]]:
    """Every row of every table of assets and audit, to see that nothing changed."""
    tables = await owner.fetch(
        "SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname IN ('assets', 'audit') AND c.relkind = 'r'"
    )
    return {table["name"]: sorted(map(repr, await owner.fetch(f"SELECT * FROM {table['name']}"))) for table in tables}


async def violations(owner: Connection, settled: bool = False) -> list[str]:
    """The invariants that do not hold."""
    rows = await owner.fetch("SELECT invariant FROM assets.audit_invariants($1)", settled)
    return sorted(row["invariant"] for row in rows)
