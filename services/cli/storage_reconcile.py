"""`ninaku storage reconcile`: what rows say about objects, and what the stores say (both ways)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from libs.assets.public_urls import PublicUrls
from libs.storage.clients import Provider
from libs.storage.errors import StorageError
from libs.storage.object_store import ListedObject, ObjectStore
from services.cli.failures import Failure
from services.processing.cdn import Cdn, CdnFailed

SAFETY_AGE: Final = timedelta(hours=26)
"""A stray object younger than this may belong to work that is not over: a lease, or a requeue within a day."""
LEAST_SAFETY_AGE: Final = timedelta(hours=1)
"""Longer than any lease with its renewal: below this a living worker's objects could be taken for strays."""
_PAGE: Final = 1_000
_SHOWN: Final = 50
_PLACES: Final = (
    (Provider.S3_PRIVATE, "m/"),
    (Provider.S3_PRIVATE, "p/"),
    (Provider.S3_PUBLIC, "a/"),
    (Provider.R2_PUBLIC, "a/"),
)

_JUDGE: Final = "SELECT * FROM assets.judge_storage_keys($1, $2)"
_LIST: Final = "SELECT * FROM assets.list_storage_objects($1, $2, $3, $4)"
_MARK: Final = "SELECT * FROM assets.mark_storage_objects($1, $2)"

Out = Callable[[str], None]


class Finding(StrEnum):
    """What can be wrong, in the words that are printed."""

    STRAY = "stray"
    """An object that no row names, old enough to belong to nobody."""
    PURGED = "purged"
    """An object of an asset that was purged: it should not exist, whatever its age."""
    MISSING = "missing"
    """A row whose object is gone."""
    FOUND_AGAIN = "found again"
    """A row that says its object is missing, and the object is there."""


_REPAIRS: Final = {
    Finding.STRAY: "removed",
    Finding.PURGED: "removed",
    Finding.MISSING: "marked missing",
    Finding.FOUND_AGAIN: "marked available",
}


@dataclass(frozen=True, slots=True)
class Found:
    """One finding. `storage_object_id` is the row's, where there is one; `asset` says which asset and how it stands."""

    finding: Finding
    provider: Provider
    key: str
    asset: str
    storage_object_id: UUID | None = None


@dataclass
class Report:
    """What was looked at, what was found, and what was done about it."""

    objects: int = 0
    rows: int = 0
    young: int = 0
    in_flight: int = 0
    found: list[Found] = field(default_factory=list)
    settled: int = 0
    """Findings that were mended, or had changed by themselves."""
    unrepaired: int = 0

    @property
    def is_right(self) -> bool:
        """Whether rows and objects agree now."""
        return len(self.found) == self.settled and self.unrepaired == 0


class Reconciliation:
    """One run over every place that the store has. Safe beside running workers: it never touches unsettled work."""

    def __init__(
        self,
        connection: Any,
        store: ObjectStore,
        providers: Sequence[Provider],
        *,
        urls: PublicUrls,
        cdn: Cdn | None,
        out: Out,
        safety_age: timedelta = SAFETY_AGE,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`connection` is the operator's to the database; `providers` are those that `store` reaches.

        Raises Failure for a safety age below an hour.
        """
        if safety_age < LEAST_SAFETY_AGE:
            raise Failure("The safety age is at least one hour: younger objects may belong to work under way.")
        self._connection = connection
        self._store = store
        self._providers = frozenset(providers)
        self._urls = urls
        self._cdn = cdn
        self._out = out
        self._safety_age = safety_age
        self._now = now

    async def run(self, repair: bool) -> Report:
        """Look at everything, print what disagrees, and with `repair` mend it.

        Raises Failure when a store does not answer while it is looked at: then nothing was changed.
        """
        report = Report()
        try:
            await self._look(report)
        except StorageError as error:
            raise Failure(f"Object storage did not answer ({error}); nothing was changed.") from None
        self._print(report, repair)
        if repair:
            await self._repair(report)
        self._out(self._summary(report, repair))
        return report

    async def _look(self, report: Report) -> None:
        for provider, prefix in _PLACES:
            if provider in self._providers:
                async for page in self._store.pages(provider, prefix):
                    report.objects += len(page)
                    await self._judge(report, provider, page)
                await self._look_for_rows(report, provider, prefix)
            elif await self._connection.fetch(_LIST, provider.value, prefix, "", 1):
                raise Failure(f"Rows name objects at {provider}, which is not configured here: set its variables too.")

    async def _judge(self, report: Report, provider: Provider, page: Sequence[ListedObject]) -> None:
        verdicts = await self._connection.fetch(_JUDGE, provider.value, [each.key for each in page])
        for listed, row in zip(page, verdicts, strict=True):
            asset = f"asset {row['asset_id']}" if row["asset_id"] else "no asset"
            match row["verdict"]:
                case "in_flight":
                    report.in_flight += 1
                case "purged":
                    report.found.append(Found(Finding.PURGED, provider, listed.key, asset))
                case "found_again":
                    found = Found(Finding.FOUND_AGAIN, provider, listed.key, asset, row["storage_object_id"])
                    report.found.append(found)
                case "stray" if self._now() - listed.written_at < self._safety_age:
                    report.young += 1
                case "stray":
                    report.found.append(Found(Finding.STRAY, provider, listed.key, asset))

    async def _look_for_rows(self, report: Report, provider: Provider, prefix: str) -> None:
        after = ""
        while rows := await self._connection.fetch(_LIST, provider.value, prefix, after, _PAGE):
            report.rows += len(rows)
            there = await self._keys_between(provider, prefix, after, rows[-1]["object_key"])
            for row in rows:
                # A purge removes objects before rows; and what is said to be missing was reported when it was found.
                if row["asset_status"] == "purging" or row["status"] == "missing" or row["object_key"] in there:
                    continue
                # Never on the word of a listing alone: it may have been read before the object was written.
                if await self._store.head(provider, row["object_key"]) is None:
                    asset = f"asset {row['asset_id']}, {row['asset_status']}"
                    report.found.append(
                        Found(Finding.MISSING, provider, row["object_key"], asset, row["storage_object_id"])
                    )
            after = rows[-1]["object_key"]

    async def _keys_between(self, provider: Provider, prefix: str, after: str, last: str) -> set[str]:
        keys: set[str] = set()
        async for page in self._store.pages(provider, prefix, after):
            keys.update(each.key for each in page)
            if page[-1].key >= last:
                break
        return keys

    async def _repair(self, report: Report) -> None:
        served: list[str] = []
        for found in report.found:
            try:
                mended = await self._mend(found)
            except StorageError as error:
                report.unrepaired += 1
                self._out(f"FAILED   {found.provider} {found.key}: {error}")
                continue
            report.settled += 1
            if mended and found.finding in (Finding.STRAY, Finding.PURGED) and found.key.startswith("a/"):
                served.append(f"{self._urls.base_url}/{found.key}")
        if served:
            await self._forget(report, served)

    async def _mend(self, found: Found) -> bool:
        """Look once more, and mend what is still as it was found; False when it is not."""
        if found.finding in (Finding.STRAY, Finding.PURGED):
            (row,) = await self._connection.fetch(_JUDGE, found.provider.value, [found.key])
            if row["verdict"] != found.finding.value:
                self._out(f"left     {found.provider} {found.key}: it is {row['verdict']} by now")
                return False
            await self._store.remove(found.provider, found.key)
            return True
        is_there = await self._store.head(found.provider, found.key) is not None
        if is_there is not (found.finding is Finding.FOUND_AGAIN):
            self._out(f"left     {found.provider} {found.key}: it has changed meanwhile")
            return False
        status = "available" if is_there else "missing"
        async with self._connection.transaction():
            await self._connection.fetch(_MARK, [found.storage_object_id], status)
        return True

    async def _forget(self, report: Report, urls: list[str]) -> None:
        """Public objects that should not have been there may have been fetched: the CDN must forget them too."""
        if self._cdn is None:
            report.unrepaired += len(urls)
            self._out(f"FAILED   {len(urls)} URLs may still be cached: no CDN is configured here (nor ASSETS_CDN=none)")
            for url in urls:
                self._out(f"           {url}")
            return
        try:
            await self._cdn.purge(urls)
        except CdnFailed as error:
            report.unrepaired += len(urls)
            self._out(f"FAILED   the CDN did not forget ({error.code}); purge these yourself:")
            for url in urls:
                self._out(f"           {url}")

    def _print(self, report: Report, repair: bool) -> None:
        for finding in Finding:
            listed = [found for found in report.found if found.finding is finding]
            for found in listed[: None if repair else _SHOWN]:
                self._out(f"{finding:<11} {found.provider} {found.key} ({found.asset})")
            if not repair and len(listed) > _SHOWN:
                self._out(f"{finding:<11} … and {len(listed) - _SHOWN} more")

    def _summary(self, report: Report, repair: bool) -> str:
        counts = Counter(found.finding for found in report.found)
        left = (
            f"{report.in_flight} objects of work under way and {report.young} younger than {_hours(self._safety_age)}"
        )
        lines = [f"{report.objects} objects, {report.rows} rows; {left} were left alone."]
        if not report.found:
            lines.append("Rows and objects agree.")
        for finding, count in counts.items():
            lines.append(
                f"{count} {finding}" + (f": {_REPAIRS[finding]}" if repair else f"; --repair: {_REPAIRS[finding]}")
            )
        if report.unrepaired:
            lines.append(f"{report.unrepaired} could not be mended: run it again.")
        return "\n".join(lines)


def _hours(age: timedelta) -> str:
    return f"{age.total_seconds() / 3600:g} h"
