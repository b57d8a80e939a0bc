"""What rows say about stored objects, for comparing both with each other."""

from uuid import uuid4

import pytest

from tests.database.arrange import claim, queue_upload, ready_asset, record, refused, reserve, token, usage
from tests.database.failure import archived_asset, begin, claim_purge, finish, queue_purge, violations
from tests.support.database import Connection, Person


async def token_of(owner: Connection, asset_id: object) -> str:
    found: str = await owner.fetchval("SELECT delivery_token FROM assets.assets WHERE id = $1", asset_id)
    return found


async def test_objects_are_listed_in_the_byte_order_of_their_keys_page_by_page(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    for person in (ana, bruno, ana):
        await ready_asset(admission, worker, person)
    listed: list[str] = []
    while True:
        page = await owner.fetch(
            "SELECT * FROM assets.list_storage_objects('r2-public', 'a/', $1, 5)", listed[-1] if listed else ""
        )
        listed += [row["object_key"] for row in page]
        if len(page) < 5:
            break
    assert len(listed) == 12
    assert listed == sorted(listed, key=str.encode)
    assert {row["asset_status"] for row in page} <= {"ready"}
    private = await owner.fetch("SELECT object_key FROM assets.list_storage_objects('s3-private', 'm/', '', 1000)")
    assert len(private) == 3
    for size in (0, 1001, None):
        with refused("assets_page_size"):
            await owner.fetch("SELECT * FROM assets.list_storage_objects('s3-private', 'm/', '', $1)", size)


async def test_every_key_that_is_found_is_judged_by_what_its_asset_is_now(
    owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    async def judged(*keys: str, provider: str = "s3-private") -> list[str]:
        rows = await owner.fetch("SELECT * FROM assets.judge_storage_keys($1, $2)", provider, list(keys))
        assert [row["object_key"] for row in rows] == list(keys)
        return [row["verdict"] for row in rows]

    ready = await token_of(owner, await ready_asset(admission, worker, ana))
    failed = (await queue_upload(admission, ana))["asset_id"]
    await record(worker, await claim(worker), "failed_permanent", "assets.image_corrupt")
    issued = await reserve(admission, ana)
    purged_id = await archived_asset(admission, worker, ana)
    purged = await token_of(owner, purged_id)
    purging_id = await archived_asset(admission, worker, ana)
    for asset_id, done in ((purged_id, True), (purging_id, False)):
        await queue_purge(owner, asset_id)
        job = await claim_purge(worker)
        await begin(worker, job)
        if done:
            await finish(worker, job)
    failed_token = await token_of(owner, failed)
    open_token = await token_of(owner, issued["asset_id"])
    settled = await owner.fetchval("SELECT staging_object_key FROM assets.uploads WHERE asset_id = $1", failed)

    expected = {
        f"m/{ready}/original.webp": "known",
        f"m/{ready}/original-2.webp": "stray",
        f"m/{failed_token}/original.webp": "stray",
        f"m/{open_token}/original.webp": "in_flight",
        f"m/{purged}/original.webp": "purged",
        f"m/{await token_of(owner, purging_id)}/other.webp": "in_flight",
        f"m/{token()}/original.webp": "stray",
        issued["staging_object_key"]: "in_flight",
        settled: "stray",
        f"in/{token()}": "stray",
        "elsewhere": "stray",
    }
    assert await judged(*expected) == list(expected.values())
    assert await judged(f"a/{ready}/p1/tile.webp", provider="r2-public") == ["known"]
    assert await judged(f"a/{ready}/p1/tile.webp") == ["stray"]  # a copy at the wrong provider
    for keys in ([], ["m/x"] * 1001):
        with refused("assets_page_size"):
            await judged(*keys)


async def test_an_object_that_is_missing_counts_no_bytes_and_makes_its_asset_incomplete_until_it_is_found_again(
    owner: Connection, admission: Connection, worker: Connection, ana: Person, bruno: Person
) -> None:
    asset_id = await ready_asset(admission, worker, ana)
    await ready_asset(admission, worker, bruno)
    key = f"a/{await token_of(owner, asset_id)}/p1/tile.webp"
    object_id = await owner.fetchval("SELECT id FROM assets.storage_objects WHERE object_key = $1", key)
    mark = "SELECT * FROM assets.mark_storage_objects($1, $2)"

    rows = await owner.fetch(mark, [object_id, uuid4()], "missing")

    assert [(row["object_key"], row["asset_id"], row["asset_status"]) for row in rows] == [(key, asset_id, "ready")]
    assert await usage(owner, ana) == (1, 400, 0)
    assert await usage(owner, bruno) == (1, 500, 0)
    assert await violations(owner) == ["ready_asset_complete"]
    assert await owner.fetch(mark, [object_id], "missing") == []
    judged = await owner.fetchval("SELECT verdict FROM assets.judge_storage_keys('r2-public', $1)", [key])
    assert judged == "found_again"
    assert len(await owner.fetch(mark, [object_id], "available")) == 1
    assert await usage(owner, ana) == (1, 500, 0)
    assert await violations(owner) == []
    with refused("storage_objects_status_chk"):
        await owner.fetch(mark, [object_id], "somewhere")


@pytest.mark.parametrize("count", [0, 1001])
async def test_refuses_to_mark_none_or_more_than_a_thousand(owner: Connection, count: int) -> None:
    with refused("assets_page_size"):
        await owner.fetch("SELECT * FROM assets.mark_storage_objects($1, 'missing')", [uuid4() for _ in range(count)])
