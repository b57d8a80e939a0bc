"""The reads of delivery: one statement each."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from libs.assets.asset import AccessClass, AssetStatus, MediaKind, SourceKind
from libs.database.engine import Database
from libs.errors.refusal import Refusal
from libs.tenancy.callers import ServiceCaller
from services.delivery.domain import DescribedAsset

_DESCRIBE: Final = """
SELECT outcome, asset_id, status, access_class, media_kind, source_kind, delivery_token, rendition_profile, width,
       height, archived_at
FROM assets.describe_assets($1, $2, $3, $4)
"""
_FOUND: Final = "found"


class DeliveryRepository:
    """Reads under delivery's own login.

    Args:
        database: The login.
    """

    def __init__(self, database: Database) -> None:
        """Keep it."""
        self._database = database

    async def describe_assets(
        self, caller: ServiceCaller, asset_ids: Sequence[uuid.UUID]
    ) -> Mapping[uuid.UUID, DescribedAsset]:
        """Read the assets that the organization has among `asset_ids`: one statement for all.

        Raises:
            Refusal: ``tenant.context_rejected`` when the membership is not active in the organization.
        """
        rows = await self._database.read_rows(
            _DESCRIBE, caller.service, caller.organization_id, caller.membership_id, list(asset_ids)
        )
        if rows and rows[0]["outcome"] != _FOUND:
            raise Refusal("tenant.context_rejected")
        return {
            row["asset_id"]: DescribedAsset(
                id=row["asset_id"],
                status=AssetStatus(row["status"]),
                access_class=AccessClass(row["access_class"]),
                media_kind=MediaKind(row["media_kind"]),
                source_kind=SourceKind(row["source_kind"]),
                delivery_token=row["delivery_token"],
                rendition_profile=row["rendition_profile"],
                width=row["width"],
                height=row["height"],
                archived=row["archived_at"] is not None,
            )
            for row in rows
        }
