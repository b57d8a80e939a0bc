"""The audit notices each invariant when it is broken on purpose, once each, and nothing that is not broken."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.chaos.scene import Scene
from tests.support import images
from tests.support.uploads import Upload


@dataclass(frozen=True)
class Broken:
    """One break: `sql` with $1 the asset, and the invariants that it must show, no more and no fewer."""

    shows: frozenset[str]
    which: str
    sql: str


_USAGE = (
    "UPDATE assets.organization_usage SET {0} = {0} + 1"
    " WHERE organization_id = (SELECT organization_id FROM assets.assets WHERE id = $1)"
)
_OBJECT = (
    "UPDATE assets.storage_objects SET {0} WHERE object_key LIKE 'm/%' AND variant_id IN"
    " (SELECT id FROM assets.asset_variants WHERE asset_id = $1)"
)


def _broken(shows: str, which: str, sql: str) -> Broken:
    return Broken(frozenset(shows.split()), which, sql)


BREAKS = (
    _broken("usage_equals_rows", "ready", _USAGE.format("active_asset_count")),
    _broken("usage_equals_rows", "ready", _USAGE.format("stored_bytes")),
    _broken("usage_equals_rows", "ready", _USAGE.format("reserved_bytes")),
    _broken("ready_asset_complete usage_equals_rows row_has_object", "ready", _OBJECT.format("status = 'missing'")),
    _broken(
        "objects_only_of_stored_assets row_has_object object_has_row",
        "ready",
        _OBJECT.format("object_key = 'm/aaaaaaaaaaaaaaaaaaaaaaaaaa/original.webp'"),
    ),
    _broken(
        "unsettled_asset_has_work usage_equals_rows",
        "ready",
        "UPDATE assets.uploads SET state = 'received', settled_at = NULL WHERE asset_id = $1",
    ),
    _broken(
        "dead_letter_has_reason",
        "failed",
        "UPDATE assets.processing_jobs SET state = 'dead_lettered', completed_at = NULL, error_class = NULL,"
        " last_error_code = NULL WHERE asset_id = $1",
    ),
    _broken(
        "no_job_is_overdue",
        "failed",
        "INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind)"
        " SELECT gen_random_uuid(), organization_id, id, 'purge_asset' FROM assets.assets WHERE id = $1",
    ),
    _broken(
        "one_audit_record_per_change usage_equals_rows",
        "ready",
        "UPDATE assets.assets SET archived_at = now() WHERE id = $1",
    ),
    _broken("one_receipt_per_purge object_has_row", "purged", "DELETE FROM assets.purge_receipts WHERE asset_id = $1"),
    _broken(
        "purging_asset_unclaimed unsettled_asset_has_work usage_equals_rows",
        "ready",
        "WITH claimed AS (INSERT INTO assets.asset_claims (organization_id, consumer, reference, asset_id, revision)"
        " SELECT organization_id, 'catalog', 'an-item', id, 1 FROM assets.assets WHERE id = $1 RETURNING asset_id)"
        " UPDATE assets.assets SET status = 'purging' WHERE id = $1 AND EXISTS (SELECT FROM claimed)",
    ),
)


async def test_the_audit_notices_each_invariant_between_rows_when_it_is_broken_on_purpose(scene: Scene) -> None:
    world = await _settled(scene)
    purged_object = _tile(world["purged"])
    for broken in BREAKS:
        if "object_has_row" in broken.shows and broken.which == "purged":
            await scene.store.put("r2-public", purged_object, b"left", "image/webp", None)
        async with _rolled_back(scene):
            await scene.owner.execute(broken.sql, world[broken.which].asset_id)
            assert {each.invariant for each in await scene.violations()} == broken.shows, broken
        await scene.store.remove("r2-public", purged_object)
        assert await scene.violations() == []


async def test_the_audit_notices_each_invariant_between_rows_and_objects_when_it_is_broken_on_purpose(
    scene: Scene,
) -> None:
    world = await _settled(scene)
    ready = world["ready"]
    master = f"m/{ready.delivery_token}/original.webp"
    for shows, provider, key, data in (
        ("row_has_object", "s3-private", master, None),
        ("row_has_object", "s3-private", master, b"other bytes"),
        ("row_has_object", "r2-public", _tile(ready), None),
        ("object_has_row", "r2-public", f"a/{ready.delivery_token}/p1/huge.webp", b"an extra one"),
        ("object_has_row", "s3-private", f"p/{ready.delivery_token}/p1/tile.webp", b"in the wrong place"),
        ("object_has_row", "s3-public", _tile(ready), b"in the wrong store"),
        ("object_has_row", "r2-public", _tile(world["failed"]), b"of a failure for good"),
        ("object_has_row", "s3-private", f"m/{'a' * 26}/original.webp", b"nobody's"),
        ("object_has_row", "s3-private", "m/no-token", b"nobody's"),
        ("purged_is_gone", "r2-public", _tile(world["purged"]), b"come back"),
    ):
        before = await scene.store.read_at_most(provider, key, 10_000_000)
        if data is None:
            await scene.store.remove(provider, key)
        else:
            await scene.store.put(provider, key, data, "image/webp", None)
        assert {each.invariant for each in await scene.violations()} == {shows}, (key, data)
        if before is None:
            await scene.store.remove(provider, key)
        else:
            await scene.store.put(provider, key, before, "image/webp", None)
        assert await scene.violations() == []


async def _settled(scene: Scene) -> dict[str, Upload]:
    """A ready photo, a failed one, and one that was purged: the audit has nothing to say about them."""
    async with scene.worker():
        ready = await scene.uploads.receive(scene.store, images.jpeg(120, 90))
        failed = await scene.uploads.receive(scene.store, b"no photo at all")
        purged = await scene.uploads.receive(scene.store, images.jpeg(120, 90))
        await scene.reaches(ready, "ready")
        await scene.reaches(failed, "failed")
        await scene.reaches(purged, "ready")
        await scene.erase(purged)
        await scene.reaches(purged, None)
    assert await scene.violations() == []
    return {"ready": ready, "failed": failed, "purged": purged}


@asynccontextmanager
async def _rolled_back(scene: Scene) -> AsyncIterator[None]:
    """A transaction of the owner in which no trigger stands in the way, and of which nothing stays."""
    transaction = scene.owner.transaction()
    await transaction.start()
    try:
        for table in ("assets", "asset_variants"):
            await scene.owner.execute(f"ALTER TABLE assets.{table} DISABLE TRIGGER USER")
        yield
    finally:
        await transaction.rollback()


def _tile(upload: Upload) -> str:
    return f"a/{upload.delivery_token}/p1/tile.webp"
