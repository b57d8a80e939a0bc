"""The SQL functions that admission calls, and what their refusals mean."""

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import asyncpg

from libs.assets.asset import AccessClass, Asset, AssetStatus, MediaKind, SourceKind
from libs.assets.rendition_profile import PROFILE_1
from libs.database.errors import DatabaseError
from libs.errors.refusal import Refusal
from services.admission.domain import (
    CompleteOutcome,
    NewUpload,
    Reservation,
    ReserveOutcome,
    UploadIntent,
)

CODES_OF_CONSTRAINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "assets_asset_limit": "assets.asset_limit_reached",
        "assets_storage_limit": "assets.storage_limit_reached",
        "assets_open_uploads_limit": "assets.too_many_open_uploads",
        "assets_access_class_unavailable": "assets.access_class_unavailable",
        "assets_status_transition": "assets.transition_invalid",
        "assets_restoration_expired": "assets.restoration_expired",
    }
)
"""The public code of each constraint that a caller can do something about; any other is `assets.asset_refused`."""

_INTEGRITY: Final = "23"

_RESERVE: Final = """
SELECT outcome, asset_id, upload_id, upload_state, request_hash, staging_object_key, expires_at, status, access_class,
       media_kind, source_kind, display_name, created_at, upload_media_type, upload_byte_size
FROM assets.reserve_upload($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""
_COMPLETE: Final = "SELECT outcome, asset_id FROM assets.complete_upload($1, $2)"
_ASSET: Final = """
SELECT id, status, access_class, media_kind, source_kind, display_name, original_filename, width, height, byte_size,
       created_at, ready_at, archived_at, failure_code, delivery_token, rendition_profile
FROM assets.asset_in_context($1)
"""


def refusal_of(error: DatabaseError) -> Refusal:
    """Return the refusal of a broken constraint.

    Raises:
        DatabaseError: The same one, when it is no constraint: a fault of ours, not of the caller.
    """
    if error.sqlstate[:2] != _INTEGRITY:
        raise error
    return Refusal(CODES_OF_CONSTRAINTS.get(error.constraint or "", "assets.asset_refused"))


class AdmissionRepository:
    """Works in the transaction it is given, whose tenant context is open."""

    async def reserve_upload(
        self,
        connection: asyncpg.Connection,
        intent: UploadIntent,
        new: NewUpload,
        allowed: frozenset[AccessClass],
    ) -> Reservation | None:
        """Reserve, or find what the same key reserved before. None while another transaction holds the key."""
        row = await connection.fetchrow(
            _RESERVE,
            new.asset_id,
            new.variant_id,
            new.upload_id,
            new.delivery_token,
            new.staging_token,
            intent.media_type.value,
            intent.byte_size,
            intent.access_class.value,
            intent.display_name,
            intent.original_filename,
            intent.idempotency_key,
            intent.request_hash(),
            new.expires_at,
            sorted(access_class.value for access_class in allowed),
        )
        outcome = ReserveOutcome(row["outcome"])
        if outcome is ReserveOutcome.IN_PROGRESS:
            return None
        if outcome is ReserveOutcome.EXISTING:
            asset = await self.asset_in_context(connection, row["asset_id"])
        else:
            asset = Asset(
                id=row["asset_id"],
                status=AssetStatus(row["status"]),
                access_class=AccessClass(row["access_class"]),
                media_kind=MediaKind(row["media_kind"]),
                source_kind=SourceKind(row["source_kind"]),
                display_name=row["display_name"],
                original_filename=intent.original_filename,
                width=None,
                height=None,
                byte_size=None,
                created_at=row["created_at"],
                ready_at=None,
                archived_at=None,
                failure_code=None,
                delivery_token=new.delivery_token,
                rendition_profile=PROFILE_1,
            )
        return Reservation(
            outcome=outcome,
            upload_id=row["upload_id"],
            is_issued=row["upload_state"] == "issued",
            request_hash=row["request_hash"],
            staging_object_key=row["staging_object_key"],
            expires_at=row["expires_at"],
            media_type=row["upload_media_type"],
            byte_size=row["upload_byte_size"],
            asset=asset,
        )

    async def complete_upload(
        self, connection: asyncpg.Connection, upload_id: uuid.UUID, trace_context: str | None
    ) -> tuple[CompleteOutcome, uuid.UUID | None]:
        """Take note that the file was posted, and queue its processing once. Returns the outcome and the asset."""
        row = await connection.fetchrow(_COMPLETE, upload_id, trace_context)
        return CompleteOutcome(row["outcome"]), row["asset_id"]

    async def asset_in_context(self, connection: asyncpg.Connection, asset_id: uuid.UUID) -> Asset:
        """Read an asset that the transaction already knows to exist."""
        row = await connection.fetchrow(_ASSET, asset_id)
        return Asset(
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
        )
