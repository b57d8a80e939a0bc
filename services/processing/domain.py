"""What processing knows: jobs, limits, the codes a photo can fail with, and what a rendered photo is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from libs.assets.media_types import MediaType

ORIGINAL_VARIANT: Final = "original"
OUTPUT_MEDIA_TYPE: Final = "image/webp"
PUBLIC_CACHE_CONTROL: Final = "public, max-age=31536000, immutable"

MIN_SIDE: Final = 64
MAX_SIDE: Final = 12_000
MASTER_EDGE: Final = 4_096
MAX_PIXELS: Final[Mapping[MediaType, int]] = MappingProxyType(
    {
        MediaType.JPEG: 40_000_000,
        MediaType.PNG: 40_000_000,
        MediaType.WEBP: 40_000_000,
        MediaType.AVIF: 12_000_000,
    }
)
"""Pixels a decoder may produce, by the format found in the bytes (§12): AVIF costs several times the memory."""


class FailureCode(StrEnum):
    """Why a job did not end well: the failure matrix of §12, the codes of §14, and what stops a purge (§16)."""

    UPLOAD_MISSING = "assets.upload_missing"
    SIZE_MISMATCH = "assets.size_mismatch"
    CONTENT_MISMATCH = "assets.content_mismatch"
    IMAGE_TOO_LARGE = "assets.image_too_large"
    IMAGE_TOO_SMALL = "assets.image_too_small"
    IMAGE_CORRUPT = "assets.image_corrupt"
    STORAGE_UNAVAILABLE = "assets.storage_unavailable"
    STORAGE_REFUSED = "assets.storage_refused"
    PROCESSING_ERROR = "assets.processing_error"
    CDN_UNAVAILABLE = "assets.cdn_unavailable"
    CDN_REFUSED = "assets.cdn_refused"


class JobKind(StrEnum):
    """The kinds of job the image loop knows (§6)."""

    PROCESS_UPLOAD = "process_upload"
    RENDER_PROFILE = "render_profile"
    PURGE_ASSET = "purge_asset"


class AccessClass(StrEnum):
    """Who may fetch an asset's renditions."""

    PUBLIC = "public"
    PRIVATE = "private"
    SENSITIVE = "sensitive"


class Sweep(StrEnum):
    """The sweeps of the fleet (§11); the database knows when each is due."""

    EXPIRE_UPLOADS = "expire_uploads"
    RECONCILE_USAGE = "reconcile_usage"
    ENQUEUE_PURGES = "enqueue_purges"
    PRUNE_JOBS = "prune_finished_jobs"
    PRUNE_UPLOADS = "prune_settled_uploads"


class ClaimState(StrEnum):
    """What a claim did with the job it picked (§14): only `leased` is work."""

    LEASED = "leased"
    DEAD_LETTERED = "dead_lettered"
    COMPLETED = "completed"


class LeaseStanding(StrEnum):
    """What a worker may do with the objects of an attempt."""

    HELD = "held"
    SUPERSEDED = "superseded"
    UNWANTED = "unwanted"


class OutcomeKind(StrEnum):
    """The four outcomes of §6."""

    READY = "ready"
    RETRY_STORAGE = "retry_storage"
    RETRY_PROCESSING = "retry_processing"
    FAILED_PERMANENT = "failed_permanent"


class FailureClass(StrEnum):
    """Whose fault a failure is, which decides whether and when it is tried again (§14)."""

    STORAGE = "storage"
    PERMANENT = "permanent"
    PROCESSING = "processing"


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """One job under our lease, with all that its handler needs; times are UTC, sizes in bytes."""

    job_id: UUID
    lease_token: UUID
    organization_id: UUID
    asset_id: UUID | None
    job_kind: str
    attempt_count: int
    processing_error_count: int
    claim_state: ClaimState
    delivery_token: str | None
    access_class: str | None
    rendition_profile: int | None
    upload_id: UUID | None
    staging_provider_code: str | None
    staging_object_key: str | None
    declared_media_type: str | None
    declared_byte_size: int | None
    original_variant_id: UUID | None
    upload_expires_at: datetime | None
    trace_context: str | None


@dataclass(frozen=True, slots=True)
class RenderedImage:
    """One WebP: `code` is `original` or a rendition's variant code, `width` and `height` are pixels."""

    code: str
    data: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class RenderedPhoto:
    """The master first, then every rendition of the profile; `width` and `height` are the upright source's pixels."""

    width: int
    height: int
    images: tuple[RenderedImage, ...]


@dataclass(frozen=True, slots=True)
class StoredVariant:
    """One row of a `ready` outcome: a variant, its facts, and the object that holds it (SHA-256 of 32 bytes)."""

    code: str
    variant_id: UUID
    storage_object_id: UUID
    provider_code: str
    object_key: str
    media_type: str
    byte_size: int
    checksum: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a handler found; `delay_seconds` is set on the two retries, `variants` on `ready`."""

    kind: OutcomeKind
    error_code: str | None = None
    delay_seconds: float | None = None
    variants: tuple[StoredVariant, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """A job whose end the handler has recorded itself, in the transaction of its last step; `result` says which."""

    result: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that a row names, a staging object included."""

    provider_code: str
    object_key: str


@dataclass(frozen=True, slots=True)
class PurgeStep:
    """What the database answered to the beginning of a purge (§16): only `deletable` is work."""

    outcome: str
    objects: tuple[StoredObject, ...]
    delivery_token: str | None
    rendition_profile: int | None


@dataclass(frozen=True, slots=True)
class StagingObject:
    """An object in the inbox that nobody will read again."""

    provider_code: str
    object_key: str


@dataclass(frozen=True, slots=True)
class ExpiredUpload:
    """An upload of an expiry batch; `staging` is None when the upload could not be expired and was left as it was."""

    upload_id: UUID
    staging: StagingObject | None


class PermanentFailure(Exception):
    """The upload can never become an asset; `code` is what its owner is told."""

    def __init__(self, code: FailureCode) -> None:
        super().__init__(code.value)
        self.code = code


class ImageRefused(PermanentFailure):
    """The bytes are not a photo we take; one of the image codes of §12."""


class UploadNotYetStored(Exception):
    """The staging object is not there although its policy still runs: the post may be under way."""


class StorageDeadlinePassed(Exception):
    """The lease is nearly over and storage is not done: a storage retry, so that a slow store is never our error."""


class DecoderFailed(Exception):
    """The child died, hung, ran out of memory or answered nonsense: a processing error at once."""


class LeaseLost(Exception):
    """Another worker holds the job now, so nothing of ours may be recorded."""


class OutcomeRefused(Exception):
    """The database refused an outcome; `constraint` names the rule."""

    def __init__(self, constraint: str) -> None:
        super().__init__(constraint)
        self.constraint = constraint
