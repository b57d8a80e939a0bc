"""A hundred thousand waiting jobs of one organization: what another's single upload feels of them, what a claim costs.

Costs are counted in pages that the server reads, which are the same on every machine.
"""

import json
from uuid import uuid4

import pytest

from tests.database.arrange import claim, queue_upload
from tests.support.database import Connection, DatabaseUnderTest, Person

FEW, MANY = 1_000, 100_000
EVERY_KIND = ("process_upload", "purge_asset", "render_profile")

# Rows of completed uploads and their jobs, written past the cap of open uploads. Only the head of the line is ever
# claimed here, so only that has upload rows. Finished jobs hang on the first asset.
_SEED = """
ALTER TABLE assets.assets DISABLE TRIGGER USER;
CREATE TEMPORARY TABLE seeded AS
    SELECT gen_random_uuid() AS id, n,
        translate(substr(encode(sha256(n::text::bytea), 'hex'), 1, 26), '0189', 'wxyz') AS token
    FROM generate_series({first}, {last}) AS n;
INSERT INTO assets.assets (id, organization_id, access_class, delivery_token, status)
SELECT id, '{organization}', 'public', token, 'processing' FROM seeded;
INSERT INTO assets.uploads (id, organization_id, asset_id, staging_provider_id, staging_object_key, declared_media_type,
    declared_byte_size, state, received_at, expires_at, creation_idempotency_key, creation_request_hash)
SELECT id, '{organization}', id, (SELECT p.id FROM assets.storage_providers p WHERE p.code = 's3-private'),
    'in/' || token, 'image/jpeg', 1000, 'received', now(), now() + interval '1 hour', id, repeat('a', 64)
FROM seeded WHERE n <= 100;
INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, queue_rank, available_at)
SELECT id, '{organization}', id, 'process_upload', n, now() - interval '1 hour' FROM seeded;
INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, state, completed_at)
SELECT gen_random_uuid(), '{organization}', (SELECT id FROM seeded LIMIT 1), 'process_upload', 'completed', now()
FROM generate_series(1, {finished});
ALTER TABLE assets.assets ENABLE TRIGGER USER;
DROP TABLE seeded;
VACUUM ANALYZE assets.processing_jobs;
"""


async def seed(owner: Connection, person: Person, last: int, first: int = 1, finished: int = 0) -> None:
    """Waiting uploads of one organization at ranks `first` to `last`, and finished jobs."""
    script = _SEED.format(organization=person.organization_id, first=first, last=last, finished=finished)
    for statement in script.rstrip(";\n").split(";\n"):
        await owner.execute(statement)


async def pages(connection: Connection, query: str) -> int:
    """How many pages the query reads."""
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")
    plan = json.loads(explained)[0]["Plan"]
    assert plan["Actual Rows"] >= 1
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def pages_of_a_claim(database: DatabaseUnderTest) -> int:
    """How many pages one claim reads on a connection that has claimed before: the median of eleven."""
    worker = await database.login("ninaku_processing_worker")
    counts = [
        await pages(
            worker,
            f"SELECT * FROM assets.claim_processing_job('w', '{uuid4()}', 60, '{{{','.join(EVERY_KIND)}}}')",
        )
        for _ in range(12)
    ]
    return sorted(counts[1:])[5]


async def test_a_single_upload_behind_a_hundred_thousand_waits_for_one_other_job_and_a_claim_costs_no_more(
    database: DatabaseUnderTest,
    owner: Connection,
    admission: Connection,
    worker: Connection,
    ana: Person,
    bruno: Person,
) -> None:
    await seed(owner, ana, FEW, finished=FEW)
    few = await pages_of_a_claim(database)
    await seed(owner, ana, MANY, first=FEW + 1, finished=20_000)

    single = (await queue_upload(admission, bruno))["asset_id"]
    served = [(await claim(worker, EVERY_KIND))["asset_id"] for _ in range(2)]

    assert single in served
    assert await pages_of_a_claim(database) <= 1.3 * few


@pytest.mark.parametrize("function", ["next_job_at('{process_upload}')", "queue_state()"])
async def test_looking_at_the_queue_reads_what_is_open_and_not_what_is_finished(
    owner: Connection, ana: Person, function: str
) -> None:
    await seed(owner, ana, 500, finished=20_000)
    query = f"SELECT * FROM assets.{function}"
    await pages(owner, query)  # the first call reads the function itself
    table = await owner.fetchval("SELECT pg_relation_size('assets.processing_jobs') / 8192")
    assert await pages(owner, query) < table / 10
