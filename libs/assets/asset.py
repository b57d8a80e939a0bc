"""The asset as every context sees it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class AssetStatus(StrEnum):
    """The life of an asset; `purging` is final."""

    PENDING = "pending"
    PROCESSING = "processing"
    READY = "ready"
    FAILED = "failed"
    PURGING = "purging"


class AccessClass(StrEnum):
    """Who may see an asset's renditions; it never changes after creation."""

    PUBLIC = "public"
    PRIVATE = "private"
    SENSITIVE = "sensitive"


class MediaKind(StrEnum):
    """What an asset is."""

    IMAGE = "image"


class SourceKind(StrEnum):
    """Where an asset came from."""

    UPLOAD = "upload"
    AI_GENERATED = "ai_generated"


@dataclass(frozen=True, slots=True)
class Asset:
    """One asset as it is now.

    `width`, `height` (pixels) and `byte_size` are the master's, known once it is ready. Timestamps are aware.
    """

    id: UUID
    status: AssetStatus
    access_class: AccessClass
    media_kind: MediaKind
    source_kind: SourceKind
    display_name: str | None
    original_filename: str | None
    width: int | None
    height: int | None
    byte_size: int | None
    created_at: datetime
    ready_at: datetime | None
    archived_at: datetime | None
    failure_code: str | None
    delivery_token: str
    rendition_profile: int

    @property
    def has_public_renditions(self) -> bool:
        """Whether its renditions have public URLs: only a ready, public asset's do (§9.2)."""
        return self.status is AssetStatus.READY and self.access_class is AccessClass.PUBLIC
