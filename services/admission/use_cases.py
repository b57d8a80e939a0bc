"""One function for each write: its transaction, and what comes before and after."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from libs.assets.asset import AccessClass, Asset
from libs.assets.tokens import generate_delivery_token
from libs.database.errors import DatabaseError
from libs.errors.refusal import Refusal
from libs.storage.upload_policy import UploadPolicy
from libs.tenancy.callers import UserCaller
from libs.tenancy.tenant_context import TenantAccess
from services.admission.domain import (
    COMPLETE_UPLOAD,
    REQUEST_UPLOAD,
    UPLOAD_LIFETIME,
    CompleteOutcome,
    NewUpload,
    RequestedUpload,
    Reservation,
    ReserveOutcome,
    UploadForm,
    UploadRequest,
    accept,
    policy_seconds,
)
from services.admission.rate_limit import RateLimit
from services.admission.repository import AdmissionRepository, refusal_of


class PolicySigner(Protocol):
    """What signs upload forms; `libs.storage.upload_policy.UploadPolicySigner`."""

    async def sign(self, key: str, media_type: str, max_bytes: int, expires_in_seconds: int) -> UploadPolicy:
        """Return a signed form for exactly this key and type, and at most this many bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Admission:
    """What the use cases work with."""

    access: TenantAccess
    repository: AdmissionRepository
    rate_limit: RateLimit
    signer: PolicySigner | None
    """None when the storage group is not configured: then no upload can be requested."""
    allowed: frozenset[AccessClass]
    """The access classes this deployment offers."""
    clock: Callable[[], datetime]
    """Aware time of day."""
    new_id: Callable[[], uuid.UUID]
    """Makes UUIDs of version 7."""


async def request_upload(
    admission: Admission, caller: Callable[[], UserCaller], request: UploadRequest, request_id: str
) -> RequestedUpload:
    """Reserve quota for one file and sign the form to post it with (§9.1).

    Without storage nothing else is looked at, `caller` included. The form is signed after the commit: what is signed is
    always reserved.

    Raises:
        Refusal: As the proto lists them.
    """
    signer = admission.signer
    if signer is None:
        raise Refusal("assets.storage_unavailable")
    user = caller()
    intent = accept(request, admission.allowed)
    new = NewUpload(
        asset_id=admission.new_id(),
        variant_id=admission.new_id(),
        upload_id=admission.new_id(),
        delivery_token=generate_delivery_token(),
        staging_token=generate_delivery_token(),
        expires_at=admission.clock() + UPLOAD_LIFETIME,
    )
    try:
        async with admission.access.transaction(user, REQUEST_UPLOAD, request_id) as (connection, membership_id):
            admission.rate_limit.admit(membership_id)
            reservation = await admission.repository.reserve_upload(connection, intent, new, admission.allowed)
    except DatabaseError as error:
        raise refusal_of(error) from error
    if reservation is None:
        raise Refusal("idempotency.in_progress")
    if reservation.request_hash != intent.request_hash():
        raise Refusal("idempotency.key_reused")
    return RequestedUpload(
        asset=reservation.asset,
        form=await _sign(signer, reservation, admission.clock()),
        replayed=reservation.outcome is ReserveOutcome.EXISTING,
    )


async def _sign(signer: PolicySigner, reservation: Reservation, now: datetime) -> UploadForm | None:
    seconds = policy_seconds(reservation, now)
    if seconds is None:
        return None
    policy = await signer.sign(reservation.staging_object_key, reservation.media_type, reservation.byte_size, seconds)
    return UploadForm(
        upload_id=reservation.upload_id,
        url=policy.url,
        fields=policy.fields,
        max_bytes=reservation.byte_size,
        expires_at=policy.expires_at,
    )


async def complete_upload(
    admission: Admission, caller: UserCaller, upload_id: uuid.UUID, request_id: str, trace_context: str | None
) -> Asset:
    """Take note that the file was posted and queue its processing (§10). Object storage is not asked.

    Raises:
        Refusal: As the proto lists them.
    """
    try:
        async with admission.access.transaction(caller, COMPLETE_UPLOAD, request_id) as (connection, _):
            outcome, asset_id = await admission.repository.complete_upload(connection, upload_id, trace_context)
            if outcome is CompleteOutcome.EXPIRED:
                raise Refusal("assets.upload_expired")
            if outcome is CompleteOutcome.REJECTED:
                raise Refusal("assets.upload_rejected")
            if outcome is CompleteOutcome.NOT_FOUND or asset_id is None:
                raise Refusal("assets.not_found")
            return await admission.repository.asset_in_context(connection, asset_id)
    except DatabaseError as error:
        raise refusal_of(error) from error
