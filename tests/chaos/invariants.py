"""What must hold after anything that can happen: between rows, and between rows and objects.

One function, used by every test of this folder. It looks at the database as its owner and at the stores themselves; it
believes neither a log nor a counter of ours.
"""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from libs.assets.object_keys import token_of
from libs.storage.clients import Provider
from libs.storage.object_store import ListedObject, ObjectStore
from tests.support.database import Connection

PLACES = (
    (Provider.S3_PRIVATE, "m/"),
    (Provider.S3_PRIVATE, "p/"),
    (Provider.S3_PUBLIC, "a/"),
    (Provider.R2_PUBLIC, "a/"),
)
_MOST_BYTES = 20_000_000


@dataclass(frozen=True, order=True)
class Violation:
    """One invariant that does not hold, and where."""

    invariant: str
    detail: str


async def violations(owner: Connection, store: ObjectStore, *, settled: bool = True) -> list[Violation]:
    """Every invariant that does not hold; none when all is well.

    settled: nothing is left to do: no job is open and due, and nobody works.

    - `usage_equals_rows`, `ready_asset_complete`, `objects_only_of_stored_assets`, `unsettled_asset_has_work`,
      `dead_letter_has_reason`, `purging_asset_unclaimed`, `one_audit_record_per_change`, `one_receipt_per_purge`,
      `no_job_is_overdue`: between rows, by assets.audit_invariants.
    - `row_has_object`: what a row says is available can be read, and is what the row says (size, checksum).
    - `object_has_row`: nothing lies below m/, p/ or a/ that no row names, but for what an asset that is not settled, or
      may be requeued, has from an attempt that died: the next attempt, or the purge, owns that.
    - `purged_is_gone`: nothing is left under the token of a purged asset.
    """
    rows = await owner.fetch("SELECT invariant, detail, subject_id FROM assets.audit_invariants($1)", settled)
    found = [Violation(row["invariant"], f"{row['subject_id']}: {row['detail']}") for row in rows]
    for provider, prefix in PLACES:
        found += await _between_rows_and_objects(owner, store, provider, prefix)
    return sorted(found)


async def _between_rows_and_objects(
    owner: Connection, store: ObjectStore, provider: Provider, prefix: str
) -> list[Violation]:
    listed = {each.key: each async for each in _every(store.pages(provider, prefix))}
    rows = {row["object_key"]: row for row in await _rows(owner, provider, prefix)}
    found = []
    for key, row in rows.items():
        if row["asset_status"] != "purging" and (problem := await _problem(store, provider, listed.get(key), row)):
            found.append(Violation("row_has_object", f"{provider} {key}: {problem}"))
    for key in listed.keys() - rows.keys():
        standing = await _standing(owner, token_of(key))
        if standing == "purged":
            found.append(Violation("purged_is_gone", f"{provider} {key}"))
        elif standing == "settled":
            found.append(Violation("object_has_row", f"{provider} {key}"))
    return found


async def _every(pages: AsyncIterator[tuple[ListedObject, ...]]) -> AsyncIterator[ListedObject]:
    async for page in pages:
        for listed in page:
            yield listed


async def _rows(owner: Connection, provider: Provider, prefix: str) -> list[Any]:
    rows: list[Any] = await owner.fetch(
        "SELECT o.object_key, o.status, v.byte_size, v.checksum_sha256, a.status AS asset_status"
        " FROM assets.storage_objects o JOIN assets.storage_providers p ON p.id = o.provider_id"
        " JOIN assets.asset_variants v ON v.id = o.variant_id JOIN assets.assets a ON a.id = v.asset_id"
        " WHERE p.code = $1 AND starts_with(o.object_key, $2)",
        provider.value,
        prefix,
    )
    return rows


async def _problem(store: ObjectStore, provider: Provider, listed: ListedObject | None, row: Any) -> str | None:
    if row["status"] != "available":
        return f"marked {row['status']}"
    if listed is None:
        return "is not there"
    data = await store.read_at_most(provider, row["object_key"], _MOST_BYTES)
    if data is None:
        return "is listed and cannot be read"
    if len(data) != row["byte_size"] or hashlib.sha256(data).digest() != row["checksum_sha256"]:
        return "holds other bytes"
    return None


async def _standing(owner: Connection, token: str | None) -> str:
    row = await owner.fetchrow(
        "SELECT a.status, r.asset_id IS NOT NULL AS purged, EXISTS (SELECT FROM assets.processing_jobs j"
        " WHERE j.asset_id = a.id AND j.state = 'dead_lettered') AS may_come_back"
        " FROM (VALUES ($1)) AS asked (token) LEFT JOIN assets.assets a ON a.delivery_token = asked.token"
        " LEFT JOIN assets.purge_receipts r ON r.delivery_token = asked.token",
        token,
    )
    if row["purged"]:
        return "purged"
    if row["status"] in ("pending", "processing", "purging") or (row["status"] == "failed" and row["may_come_back"]):
        return "unsettled"
    return "settled"
