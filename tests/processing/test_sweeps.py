"""Expiry and reconciliation on the real database and the real S3 server."""

import asyncio

import pytest

from libs.database.engine import Database
from libs.storage.errors import StorageUnavailable
from libs.storage.object_store import ObjectStore
from services.processing.domain import StagingObject, Sweep
from services.processing.instruments import Instruments
from services.processing.repository import ProcessingRepository
from services.processing.storage import remove_staging
from services.processing.sweeps import Sweeps
from tests.support.database import DatabaseUnderTest
from tests.support.uploads import Uploads, open_uploads

LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('assets.expire_uploads', 0))"


@pytest.fixture
def sweeps(repository: ProcessingRepository, object_store: ObjectStore, instruments: Instruments) -> Sweeps:
    return Sweeps(repository, object_store, instruments)


async def _due(uploads: Uploads) -> None:
    await uploads.owner.execute("UPDATE assets.sweeps SET next_due_at = now()")


@pytest.mark.case("A3a.03")
@pytest.mark.case("A3a.09")
async def test_expires_uploads_under_an_advisory_lock_and_deletes_their_staging_objects_ignoring_a_missing_one(
    sweeps: Sweeps, uploads: Uploads, object_store: ObjectStore, database: DatabaseUnderTest
) -> None:
    stored = await uploads.reserve(1_000, expires_in_seconds=-60)
    missing = await uploads.reserve(2_000, expires_in_seconds=-30)
    open_ = await uploads.reserve(4_000)
    for upload in (stored, open_):
        await object_store.put("s3-private", upload.staging_key, b"x" * 1_000, "image/jpeg", None)

    other = await database.owner()
    async with other.transaction():
        assert await other.fetchval(LOCK)
        assert await sweeps.expire_uploads() == 0
        assert await uploads.state(stored) == "issued"
    assert await sweeps.expire_uploads() == 2

    assert [await uploads.state(upload) for upload in (stored, missing, open_)] == ["expired", "expired", "issued"]
    assert (await uploads.asset(stored))["failure_code"] == "assets.upload_expired"
    assert await object_store.head("s3-private", stored.staging_key) is None
    assert await object_store.head("s3-private", open_.staging_key) == 1_000
    assert await uploads.usage() == (1, 4_000, 0)


async def test_runs_once_per_period_for_the_whole_fleet(sweeps: Sweeps, uploads: Uploads) -> None:
    assert await sweeps.expire_uploads() == 0
    await uploads.reserve(1_000, expires_in_seconds=-60)
    assert await sweeps.expire_uploads() == 0
    await _due(uploads)
    assert await sweeps.expire_uploads() == 1


async def test_expires_more_than_a_batch_in_one_run(
    sweeps: Sweeps, database: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.processing.sweeps.BATCH", 3)
    one, other = await open_uploads(database), await open_uploads(database)
    for uploads in (one, other):
        for _ in range(5):
            await uploads.reserve(1_000, expires_in_seconds=-60)
    assert await sweeps.expire_uploads() == 10
    assert await one.usage() == await other.usage() == (0, 0, 0)


@pytest.mark.case("A3a.07")
async def test_isolates_a_failing_upload_so_the_next_sweep_expires_the_rest(
    sweeps: Sweeps, uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The oldest upload fails and fills every batch: without isolation no sweep ever gets past it.
    monkeypatch.setattr("services.processing.sweeps.BATCH", 1)
    poisoned = await uploads.reserve(1_000, expires_in_seconds=-600)
    fine = await uploads.reserve(1_000, expires_in_seconds=-60)
    await uploads.owner.execute(
        "CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = '23514', CONSTRAINT = 'poison'; END $$"
    )
    await uploads.owner.execute(
        "CREATE TRIGGER poison BEFORE UPDATE ON assets.uploads FOR EACH ROW"
        f" WHEN (OLD.id = '{poisoned.upload_id}') EXECUTE FUNCTION public.poison()"
    )
    async with asyncio.timeout(60):
        assert await sweeps.expire_uploads() == 1
    assert [await uploads.state(upload) for upload in (poisoned, fine)] == ["issued", "expired"]

    later = await uploads.reserve(1_000, expires_in_seconds=-60)
    await _due(uploads)
    async with asyncio.timeout(60):
        assert await sweeps.expire_uploads() == 1
    assert [await uploads.state(upload) for upload in (poisoned, later)] == ["issued", "expired"]

    await uploads.owner.execute("DROP TRIGGER poison ON assets.uploads")
    await _due(uploads)
    assert await sweeps.reconcile_usage()
    assert await sweeps.expire_uploads() == 1
    assert await uploads.state(poisoned) == "expired"


async def test_recounts_usage_before_it_gives_up_on_an_upload_whose_counter_has_drifted(
    sweeps: Sweeps, uploads: Uploads
) -> None:
    drifted = await uploads.reserve(1_000, expires_in_seconds=-600)
    await uploads.owner.execute("UPDATE assets.organization_usage SET reserved_bytes = 0, active_asset_count = 0")
    assert await sweeps.expire_uploads() == 1
    assert await uploads.state(drifted) == "expired"
    assert await uploads.usage() == (0, 0, 0)


@pytest.mark.case("A3a.08")
async def test_never_runs_the_expiry_sweep_and_the_reconciliation_at_the_same_time(
    repository: ProcessingRepository, sweeps: Sweeps, uploads: Uploads
) -> None:
    expired = await uploads.reserve(1_000, expires_in_seconds=-60)
    await _due(uploads)
    async with repository.beginning(Sweep.RECONCILE_USAGE) as work:
        assert work is not None
        async with asyncio.timeout(5):
            assert await sweeps.expire_uploads() == 0
        async with repository.continuing(Sweep.EXPIRE_UPLOADS) as other:
            assert other is None
    assert await uploads.state(expired) == "issued"
    async with repository.beginning(Sweep.EXPIRE_UPLOADS) as work:
        assert work is not None
        await _other_due(uploads)
        async with asyncio.timeout(5):
            assert not await sweeps.reconcile_usage()


async def _other_due(uploads: Uploads) -> None:
    await uploads.owner.execute("UPDATE assets.sweeps SET next_due_at = now() WHERE sweep_code = 'reconcile_usage'")


async def test_recounts_the_usage_of_every_organization_once_it_is_due(
    sweeps: Sweeps, database: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.processing.sweeps.BATCH", 2)
    organizations = [await open_uploads(database) for _ in range(5)]
    for uploads in organizations:
        await uploads.reserve(1_000)
    await organizations[0].owner.execute("UPDATE assets.organization_usage SET reserved_bytes = 7")
    assert not await sweeps.reconcile_usage()
    await _due(organizations[0])
    assert await sweeps.reconcile_usage()
    assert [await uploads.usage() for uploads in organizations] == [(1, 1_000, 0)] * 5


async def test_tries_to_delete_a_staging_object_three_times_and_then_leaves_it_to_the_bucket() -> None:
    class Failing:
        public_provider = "r2-public"

        def __init__(self, failures: int) -> None:
            self.failures = failures
            self.calls = 0

        async def head(self, provider: str, key: str) -> int | None:
            raise AssertionError

        async def read_at_most(self, provider: str, key: str, max_bytes: int) -> bytes | None:
            raise AssertionError

        async def put(self, provider: str, key: str, data: bytes, content_type: str, cache_control: str | None) -> None:
            raise AssertionError

        async def remove(self, provider: str, key: str) -> None:
            self.calls += 1
            if self.calls <= self.failures:
                raise StorageUnavailable("remove", provider, "SlowDown")

    for failures, removed, calls in ((0, True, 1), (2, True, 3), (9, False, 3)):
        store = Failing(failures)
        assert await remove_staging(store, StagingObject("s3-private", "in/x")) is removed
        assert store.calls == calls


async def test_leaves_the_sweep_due_when_its_batch_fails(
    sweeps: Sweeps, uploads: Uploads, worker_database: Database
) -> None:
    await uploads.reserve(1_000, expires_in_seconds=-60)
    before = await uploads.owner.fetchval("SELECT next_due_at FROM assets.sweeps WHERE sweep_code = 'expire_uploads'")
    await uploads.owner.execute("ALTER FUNCTION assets.expire_uploads(integer, uuid[]) RENAME TO expire_uploads_away")
    with pytest.raises(Exception, match="42883"):
        await sweeps.expire_uploads()
    after = await uploads.owner.fetchval("SELECT next_due_at FROM assets.sweeps WHERE sweep_code = 'expire_uploads'")
    assert after == before
