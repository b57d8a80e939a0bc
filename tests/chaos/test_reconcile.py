"""`ninaku storage reconcile` on buckets and rows that disagree, as they do after a restore."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from libs.assets.public_urls import PublicUrls
from libs.settings.groups import CloudflarePurge, PublicStoreOperator, StorageOperator
from libs.storage.clients import Provider, operator_layout
from libs.storage.errors import StorageUnavailable
from services.cli.failures import Failure
from services.cli.storage_reconcile import Finding, Reconciliation, Report
from services.processing.cdn import Cdn, open_cdn
from tests.chaos.scene import Scene, operator_variables
from tests.support import images
from tests.support.uploads import Upload

URLS = PublicUrls("https://media.example.com")


class Command:
    """The command, run on a scene."""

    def __init__(self, scene: Scene, cdn: Cdn | None) -> None:
        self.scene = scene
        self.cdn = cdn
        self.printed: list[str] = []
        self.store: Any = scene.store
        variables = operator_variables(scene.storage)
        layout = operator_layout(StorageOperator.read(variables), PublicStoreOperator.read(variables))
        self.providers = tuple(layout.accounts)

    async def run(self, *, repair: bool, hours_later: float = 0.0, safety_hours: float = 26.0) -> Report:
        """As if it were run `hours_later`: the store's own times cannot be set."""
        self.printed.clear()
        return await Reconciliation(
            self.scene.owner,
            self.store,
            self.providers,
            urls=URLS,
            cdn=self.cdn,
            out=self.printed.append,
            safety_age=timedelta(hours=safety_hours),
            now=lambda: datetime.now(UTC) + timedelta(hours=hours_later),
        ).run(repair)

    @property
    def output(self) -> str:
        """Everything it printed."""
        return "\n".join(self.printed)


@pytest_asyncio.fixture
async def command(scene: Scene) -> AsyncIterator[Command]:
    async with open_cdn(CloudflarePurge.read(scene.cdn.variables), None, None) as cdn:
        yield Command(scene, cdn)


def _found(report: Report) -> dict[Finding, list[str]]:
    found: dict[Finding, list[str]] = {}
    for each in report.found:
        found.setdefault(each.finding, []).append(each.key)
    return {finding: sorted(keys) for finding, keys in found.items()}


def _master(upload: Upload) -> str:
    return f"m/{upload.delivery_token}/original.webp"


def _tile(upload: Upload) -> str:
    return f"a/{upload.delivery_token}/p1/tile.webp"


async def test_reports_first_and_changes_nothing_then_repairs_and_is_content(scene: Scene, command: Command) -> None:
    first, second = await scene.ready(2)
    assert (await command.run(repair=False)).found == []
    assert "Rows and objects agree." in command.output

    stray = f"a/{'b' * 26}/p1/card.webp"
    await scene.store.put("r2-public", stray, b"nobody's", "image/webp", None)
    await scene.store.remove("s3-private", _master(first))
    await scene.store.remove("r2-public", _tile(second))

    report = await command.run(repair=False, hours_later=27)
    expected = {Finding.STRAY: [stray], Finding.MISSING: sorted([_master(first), _tile(second)])}
    assert _found(report) == expected
    assert not report.is_right
    for key in (stray, _master(first), _tile(second)):
        assert key in command.output
    assert str(first.asset_id) in command.output
    assert await scene.store.head("r2-public", stray) is not None
    assert await scene.owner.fetchval("SELECT count(*) FROM assets.storage_objects WHERE status = 'missing'") == 0

    report = await command.run(repair=True, hours_later=27)
    assert _found(report) == expected
    assert report.is_right
    assert await scene.store.head("r2-public", stray) is None
    assert scene.cdn.purged == [f"https://media.example.com/{stray}"]
    missing = await scene.owner.fetch("SELECT object_key FROM assets.storage_objects WHERE status = 'missing'")
    assert {row["object_key"] for row in missing} == {_master(first), _tile(second)}
    assert {each.invariant for each in await scene.violations()} == {"ready_asset_complete", "row_has_object"}
    assert (await command.run(repair=False)).is_right

    # The bucket is restored as well: what was missing is found again.
    for key, provider in ((_master(first), "s3-private"), (_tile(second), "r2-public")):
        await scene.store.put(provider, key, b"restored", "image/webp", None)
    report = await command.run(repair=True)
    assert _found(report) == {Finding.FOUND_AGAIN: sorted([_master(first), _tile(second)])}
    assert "found again" in command.output
    assert await scene.owner.fetchval("SELECT count(*) FROM assets.storage_objects WHERE status = 'missing'") == 0
    assert {each.invariant for each in await scene.violations()} == {"row_has_object"}  # other bytes than recorded


async def test_leaves_young_strays_and_everything_of_work_under_way(scene: Scene, command: Command) -> None:
    waiting = await scene.uploads.receive(scene.store, images.jpeg(100, 90))
    await scene.store.put("s3-private", _master(waiting), b"of an attempt that died", "image/webp", None)
    young = f"m/{'c' * 26}/original.webp"
    await scene.store.put("s3-private", young, b"young", "image/webp", None)
    report = await command.run(repair=True)
    assert (report.found, report.in_flight, report.young) == ([], 1, 1)
    report = await command.run(repair=True, hours_later=1_000)
    assert _found(report) == {Finding.STRAY: [young]}
    assert report.in_flight == 1
    assert await scene.store.head("s3-private", _master(waiting)) is not None


async def test_removes_what_came_back_of_a_purged_asset_whatever_its_age_and_purges_its_urls(
    scene: Scene, command: Command
) -> None:
    (upload,) = await scene.ready(1)
    await scene.erase(upload)
    async with scene.worker():
        await scene.reaches(upload, None)
    scene.cdn.purged.clear()
    await scene.store.put("r2-public", _tile(upload), b"come back", "image/webp", None)
    assert _found(await command.run(repair=True)) == {Finding.PURGED: [_tile(upload)]}
    assert scene.cdn.purged == [f"https://media.example.com/{_tile(upload)}"]
    assert await scene.violations() == []


async def test_is_not_content_when_the_cdn_did_not_forget(scene: Scene, command: Command) -> None:
    stray = f"a/{'b' * 26}/p1/card.webp"
    for cdn, trouble in ((command.cdn, ["refused"]), (None, [])):
        await scene.store.put("r2-public", stray, b"nobody's", "image/webp", None)
        command.cdn, scene.cdn.trouble = cdn, trouble
        assert not (await command.run(repair=True, hours_later=27)).is_right
        assert f"https://media.example.com/{stray}" in command.output


async def test_does_not_touch_what_changed_since_it_was_found(scene: Scene, command: Command) -> None:
    """A restore of the bucket goes on while the command runs, and a row appears for what was a stray."""
    (upload,) = await scene.ready(1)
    await scene.store.remove("r2-public", _tile(upload))
    stray = f"m/{'c' * 26}/original.webp"
    await scene.store.put("s3-private", stray, b"nobody's", "image/webp", None)
    looked = False

    class Meanwhile:
        """The store, in which something happens once everything was looked at."""

        def __getattr__(self, name: str) -> Any:
            return getattr(scene.store, name)

        async def head(self, provider: str, key: str) -> int | None:
            nonlocal looked
            if not looked:
                looked = True
                return None
            await scene.store.put("r2-public", _tile(upload), b"restored", "image/webp", None)
            return await scene.store.head(provider, key)

        async def remove(self, provider: str, key: str) -> None:
            raise StorageUnavailable("remove", provider, "SlowDown")

    command.store = Meanwhile()
    report = await command.run(repair=True, hours_later=27)
    assert "it has changed meanwhile" in command.output
    assert (report.unrepaired, report.is_right) == (1, False)
    assert await scene.owner.fetchval("SELECT count(*) FROM assets.storage_objects WHERE status = 'missing'") == 0


async def test_refuses_a_short_safety_age_and_a_store_it_was_not_given(scene: Scene, command: Command) -> None:
    with pytest.raises(Failure, match="at least one hour"):
        await command.run(repair=False, safety_hours=0.5)
    await scene.ready(1)
    command.providers = (Provider.S3_PRIVATE, Provider.S3_PUBLIC)
    with pytest.raises(Failure, match="r2-public"):
        await command.run(repair=True)


async def test_goes_through_more_objects_than_one_page_has(
    scene: Scene, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.cli.storage_reconcile._PAGE", 3)
    uploads = await scene.ready(4)
    await scene.store.remove("r2-public", _tile(uploads[2]))
    assert _found(await command.run(repair=False)) == {Finding.MISSING: [_tile(uploads[2])]}


async def test_changes_nothing_when_a_store_does_not_answer(scene: Scene, command: Command) -> None:
    (upload,) = await scene.ready(1)

    class Silent:
        def __getattr__(self, name: str) -> Any:
            return getattr(scene.store, name)

        def pages(self, provider: str, prefix: str, after: str = "") -> Any:
            if prefix == "a/":
                raise StorageUnavailable("list", provider, "503")
            return scene.store.pages(provider, prefix, after)

    await scene.store.remove("s3-private", _master(upload))
    command.store = Silent()
    with pytest.raises(Failure, match="nothing was changed"):
        await command.run(repair=True)
    assert await scene.owner.fetchval("SELECT count(*) FROM assets.storage_objects WHERE status = 'missing'") == 0


async def test_the_command_takes_everything_from_its_environment_and_says_by_its_status_whether_both_sides_agree(
    scene: Scene,
) -> None:
    (upload,) = await scene.ready(1)
    environment = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": scene.database.dsn(),
        "ASSETS_CDN": "none",
        **operator_variables(scene.storage),
    }

    async def run(*options: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "services.cli", "storage", "reconcile", *options),
            cwd=Path(__file__).parents[2],
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    assert (await run())[0] == 0
    await scene.store.remove("s3-private", _master(upload))
    status, output = await run()
    assert status == 1
    assert _master(upload) in output
    status, output = await run("--repair")
    assert status == 0, output
    assert await scene.owner.fetchval("SELECT count(*) FROM assets.storage_objects WHERE status = 'missing'") == 1
    status, output = await run("--older-than", "0.5")
    assert status != 0
    for secret in (environment["ASSETS_S3_OPERATOR_SECRET_ACCESS_KEY"], "password-of"):
        assert secret not in output
