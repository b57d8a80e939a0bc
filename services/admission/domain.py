"""What may be uploaded, and how a request becomes an intent. No I/O, no gRPC, no SQL."""

import hashlib
import re
import unicodedata
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from libs.assets.asset import AccessClass, Asset
from libs.assets.canonical_json import canonical_json
from libs.assets.media_types import MAX_UPLOAD_BYTES, MediaType
from libs.errors.refusal import FieldViolation, Refusal, invalid
from libs.rpc.identifiers import parse_idempotency_key
from libs.tenancy.tenant_context import Action

UPLOAD_LIFETIME: Final = timedelta(minutes=15)
"""How long an issued upload waits for its completion (§9.1)."""
POLICY_SECONDS: Final = 600
"""How long a signed form is accepted; never past the upload's own end."""
LONGEST_TEXT: Final = 255

REQUEST_UPLOAD: Final = Action(
    code="assets.asset.upload_requested",
    permission="assets.media.manage",
    capability="assets.media",
    resource_kind="assets.asset",
    forbidden_code="assets.action_forbidden",
)
COMPLETE_UPLOAD: Final = Action(
    code="assets.asset.upload_completed",
    permission="assets.media.manage",
    resource_kind="assets.asset",
    forbidden_code="assets.action_forbidden",
)

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
# Left-to-right and right-to-left marks, embeddings, overrides, isolates; the Arabic letter mark; the byte order mark.
_DIRECTION: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
# Control characters, lone surrogates, line and paragraph separators.
_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Letters by category that show nothing: Hangul fillers, the grapheme joiner, the empty braille cell.
_FILLERS: Final = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0")


class ReserveOutcome(StrEnum):
    """What `assets.reserve_upload` answers."""

    CREATED = "created"
    EXISTING = "existing"
    IN_PROGRESS = "in_progress"


class CompleteOutcome(StrEnum):
    """What `assets.complete_upload` answers."""

    COMPLETED = "completed"
    ALREADY_RECEIVED = "already_received"
    EXPIRED = "expired"
    REJECTED = "rejected"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """A request as it came, nothing checked. `access_class` is None when the caller named none that exists."""

    idempotency_key: str
    media_type: str
    byte_size: int
    access_class: AccessClass | None
    display_name: str | None
    original_filename: str | None


@dataclass(frozen=True, slots=True)
class UploadIntent:
    """A request that this deployment accepts."""

    idempotency_key: uuid.UUID
    media_type: MediaType
    byte_size: int
    access_class: AccessClass
    display_name: str | None
    original_filename: str | None

    def request_hash(self) -> str:
        """The SHA-256 of the canonical input, 64 hex digits: what tells a repeat from another use of its key."""
        return hashlib.sha256(
            canonical_json(
                {
                    "accessClass": self.access_class.value,
                    "byteSize": self.byte_size,
                    "displayName": self.display_name,
                    "mediaType": self.media_type.value,
                    "originalFilename": self.original_filename,
                }
            )
        ).hexdigest()


@dataclass(frozen=True, slots=True)
class NewUpload:
    """The ids and tokens of an upload that is about to be reserved. Times are aware."""

    asset_id: uuid.UUID
    variant_id: uuid.UUID
    upload_id: uuid.UUID
    delivery_token: str
    staging_token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Reservation:
    """An upload as `reserve_upload` left or found it."""

    outcome: ReserveOutcome
    upload_id: uuid.UUID
    is_issued: bool
    request_hash: str
    staging_object_key: str
    expires_at: datetime
    media_type: str
    byte_size: int
    asset: Asset


@dataclass(frozen=True, slots=True)
class UploadForm:
    """What to post the file with. `fields` holds a signature, so it is never printed."""

    upload_id: uuid.UUID
    url: str
    fields: Mapping[str, str] = field(repr=False)
    max_bytes: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class RequestedUpload:
    """The answer to a request: `form` is None on a replay whose upload is not open any more."""

    asset: Asset
    form: UploadForm | None
    replayed: bool


def allowed_access_classes(*, data_policy_published: bool) -> frozenset[AccessClass]:
    """Return the classes this deployment offers (DESIGN D8): only `public` until the data policy is published."""
    return frozenset(AccessClass) if data_policy_published else frozenset({AccessClass.PUBLIC})


def accept(request: UploadRequest, allowed: frozenset[AccessClass]) -> UploadIntent:
    """Return the intent of a request.

    Raises:
        Refusal: ``foundation.validation_failed`` with every offending field, else ``assets.media_type_unsupported``,
            ``assets.file_too_large`` or ``assets.access_class_unavailable``, in this order (§9.1).
    """
    violations: list[FieldViolation] = []
    key = parse_idempotency_key(request.idempotency_key)
    if key is None:
        violations.append(FieldViolation("idempotency_key", "Must be a UUID of version 4 or 7."))
    media_type = request.media_type.lower()
    if len(media_type) > LONGEST_TEXT or _MEDIA_TYPE.fullmatch(media_type) is None:
        violations.append(FieldViolation("media_type", "Must be a media type, such as image/jpeg."))
    if request.byte_size < 1:
        violations.append(FieldViolation("byte_size", "Must be at least 1."))
    access_class = request.access_class
    if access_class is None:
        violations.append(FieldViolation("access_class", "Must be public, private or sensitive."))
    display_name = request.display_name
    if display_name is not None:
        if any(_is_unsafe(character) for character in display_name):
            violations.append(
                FieldViolation("display_name", "Must not contain control or direction-changing characters.")
            )
        elif display_name.strip() and all(_is_invisible(character) for character in display_name):
            violations.append(FieldViolation("display_name", "Must have at least one character that can be seen."))
        else:
            display_name = _bounded("display_name", display_name, violations)
    original_filename = request.original_filename
    if original_filename is not None:
        # Cleaned and not refused: people do not choose what their camera or messenger calls a file.
        cleaned = "".join(character for character in original_filename if not _is_unsafe(character))
        original_filename = _bounded("original_filename", cleaned, violations)
    if violations or key is None or access_class is None:
        raise invalid(*violations)
    if media_type not in set(MediaType):
        raise Refusal("assets.media_type_unsupported")
    if request.byte_size > MAX_UPLOAD_BYTES:
        raise Refusal("assets.file_too_large")
    if access_class not in allowed:
        raise Refusal("assets.access_class_unavailable")
    return UploadIntent(key, MediaType(media_type), request.byte_size, access_class, display_name, original_filename)


def policy_seconds(reservation: Reservation, now: datetime) -> int | None:
    """Return how long a form for the reservation may live: at most ten minutes and what is left of the upload.

    None when there is nothing to sign: the upload was received, is settled or over.
    """
    left = int((reservation.expires_at - now).total_seconds())
    if not reservation.is_issued or left < 1:
        return None
    return min(POLICY_SECONDS, left)


def _is_unsafe(character: str) -> bool:
    return character in _DIRECTION or unicodedata.category(character) in _UNPRINTABLE


def _is_invisible(character: str) -> bool:
    return character in _FILLERS or unicodedata.category(character) in {"Cf", "Zs"}


def _bounded(name: str, text: str, violations: list[FieldViolation]) -> str:
    trimmed = unicodedata.normalize("NFC", text).strip()
    if not 1 <= len(trimmed) <= LONGEST_TEXT:
        violations.append(
            FieldViolation(name, f"Must be 1 to {LONGEST_TEXT} characters, not counting space around it.")
        )
    return trimmed
