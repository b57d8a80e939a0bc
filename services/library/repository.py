"""The reads of the library: one statement each, from session to row."""

import uuid
from dataclasses import dataclass
from typing import Final

from libs.assets.asset import AccessClass, Asset, AssetStatus, MediaKind, SourceKind
from libs.database.engine import Database
from libs.tenancy.callers import UserCaller

FOUND: Final = "found"
NOT_FOUND: Final = "not_found"

_READ: Final = """
SELECT outcome, id, status, access_class, media_kind, source_kind, display_name, original_filename, width, height,
       byte_size, created_at, ready_at, archived_at, failure_code, delivery_token, rendition_profile
FROM assets.read_asset($1, $2, $3)
"""


@dataclass(frozen=True, slots=True)
class AssetRead:
    """What a read came to: `asset` exactly when `outcome` is `found`."""

    outcome: str
    """`found`, `not_found`, `unauthenticated`, `context_rejected` or `forbidden`."""
    asset: Asset | None


class LibraryRepository:
    """Reads under the library's own login.

    Args:
        database: The login.
    """

    def __init__(self, database: Database) -> None:
        """Keep it."""
        self._database = database

    async def read_asset(self, caller: UserCaller, asset_id: uuid.UUID) -> AssetRead:
        """Check the session, the membership and the permission, and read the asset: one statement (§9.2)."""
        row = await self._database.read_row(_READ, caller.token_hash, caller.organization_id, asset_id)
        if row is None:
            raise LookupError("assets.read_asset answers exactly one row")
        outcome: str = row["outcome"]
        if outcome != FOUND:
            return AssetRead(outcome, None)
        return AssetRead(
            outcome,
            Asset(
                id=row["id"],
                status=AssetStatus(row["status"]),
                access_class=AccessClass(row["access_class"]),
                media_kind=MediaKind(row["media_kind"]),
                source_kind=SourceKind(row["source_kind"]),
                display_name=row["display_name"],
                original_filename=row["original_filename"],
                width=row["width"],
                height=row["height"],
                byte_size=row["byte_size"],
                created_at=row["created_at"],
                ready_at=row["ready_at"],
                archived_at=row["archived_at"],
                failure_code=row["failure_code"],
                delivery_token=row["delivery_token"],
                rendition_profile=row["rendition_profile"],
            ),
        )
