"""The one registry of public error codes (DESIGN D4).

Every code that a caller can see over gRPC or HTTP, or read as ``failureCode`` of an asset, has exactly one entry here.
The README's table and ``/openapi.json`` are generated from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import grpc


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One public code: what it means to a machine and to a person."""

    code: str
    """``<context>.<reason>`` in lower case, for example ``assets.asset_limit_reached``."""
    grpc_status: grpc.StatusCode
    """The gRPC status it travels under."""
    http_status: int
    """The HTTP status the gateway answers with."""
    message: str
    """One plain sentence: what was refused."""
    remedy: str
    """One plain sentence: what the person can do."""


_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
_DENIED = grpc.StatusCode.PERMISSION_DENIED
_MISSING = grpc.StatusCode.NOT_FOUND
_STATE = grpc.StatusCode.FAILED_PRECONDITION
_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
_ABORTED = grpc.StatusCode.ABORTED
_UNAVAILABLE = grpc.StatusCode.UNAVAILABLE

_ENTRIES = (
    # --- every service -----------------------------------------------------------------------------------------------
    ErrorEntry(
        "foundation.validation_failed", _INVALID, 400,
        "The request is not valid.", "Correct the fields named in the answer and send it again.",
    ),
    ErrorEntry(
        "foundation.malformed_body", _INVALID, 400,
        "The body is not a JSON object.", "Send one JSON object in UTF-8 without repeated keys.",
    ),
    ErrorEntry(
        "foundation.body_too_large", _INVALID, 413,
        "The body is larger than this route takes.", "Send at most 64 KiB; files go straight to object storage.",
    ),
    ErrorEntry(
        "foundation.body_incomplete", _INVALID, 408,
        "The body did not arrive in time.", "Send the whole body within ten seconds.",
    ),
    ErrorEntry(
        "foundation.headers_too_large", _INVALID, 431,
        "The address and the headers are larger than is taken.", "Send at most 16 KiB of address and headers.",
    ),
    ErrorEntry(
        "foundation.malformed_request", _INVALID, 400,
        "The request is not HTTP that can be read.", "Send HTTP/1.1 with a plain path and plain headers.",
    ),
    ErrorEntry(
        "foundation.media_type_required", _INVALID, 415,
        "The body is not declared as JSON.", "Send Content-Type: application/json.",
    ),
    ErrorEntry(
        "foundation.route_not_found", _MISSING, 404,
        "There is no such route.", "See /docs for the routes of this service.",
    ),
    ErrorEntry(
        "foundation.method_not_allowed", grpc.StatusCode.UNIMPLEMENTED, 405,
        "The route does not take this method.", "Use one of the methods named in the Allow header.",
    ),
    ErrorEntry(
        "foundation.rate_limited", _EXHAUSTED, 429,
        "Too many requests in the last minute.", "Wait the seconds named in Retry-After and send it again.",
    ),
    ErrorEntry(
        "foundation.unavailable", _UNAVAILABLE, 503,
        "The service cannot answer right now.", "Send the same request again in a few seconds.",
    ),
    ErrorEntry(
        "foundation.deadline_exceeded", grpc.StatusCode.DEADLINE_EXCEEDED, 504,
        "The answer took too long.", "Send the same request again; a write with its key is done once only.",
    ),
    ErrorEntry(
        "foundation.internal", grpc.StatusCode.INTERNAL, 500,
        "Something went wrong on our side.", "Send it again; if it stays, tell support the request id.",
    ),
    # --- who is asking -----------------------------------------------------------------------------------------------
    ErrorEntry(
        "identity.unauthenticated", _UNAUTHENTICATED, 401,
        "The session is missing, unknown or over.", "Sign in again.",
    ),
    ErrorEntry(
        "tenant.context_rejected", _DENIED, 403,
        "You are not an active member of this organization.", "Choose an organization you belong to.",
    ),
    ErrorEntry(
        "platform.capability_not_entitled", _DENIED, 403,
        "The organization's plan does not include this.", "Renew or upgrade the plan.",
    ),
    ErrorEntry(
        "idempotency.key_reused", grpc.StatusCode.ALREADY_EXISTS, 409,
        "The Idempotency-Key was used for another request.", "Use a new key for a new request.",
    ),
    ErrorEntry(
        "idempotency.in_progress", _ABORTED, 409,
        "A request with this Idempotency-Key is still running.", "Wait a moment and send the same request again.",
    ),
    # --- requests about assets ---------------------------------------------------------------------------------------
    ErrorEntry(
        "assets.action_forbidden", _DENIED, 403,
        "Your role does not allow this.", "Ask an owner or an organization-wide manager.",
    ),
    ErrorEntry(
        "assets.not_found", _MISSING, 404,
        "There is no such asset or upload.", "Check the id and the organization.",
    ),
    ErrorEntry(
        "assets.storage_unavailable", _UNAVAILABLE, 503,
        "Object storage is not available.", "Try again in a few minutes.",
    ),
    ErrorEntry(
        "assets.asset_refused", _STATE, 422,
        "The change was refused.", "Read the asset again and check what it allows.",
    ),
    ErrorEntry(
        "assets.media_type_unsupported", _INVALID, 422,
        "Only JPEG, PNG, WebP and AVIF images are accepted.", "Save the image as JPEG, PNG, WebP or AVIF.",
    ),
    ErrorEntry(
        "assets.file_too_large", _INVALID, 422,
        "The file is larger than 10 MiB.", "Export the photo with a smaller size or a lower quality.",
    ),
    ErrorEntry(
        "assets.access_class_unavailable", _STATE, 422,
        "This access class is not offered here.", "Use the access class \"public\".",
    ),
    ErrorEntry(
        "assets.asset_limit_reached", _EXHAUSTED, 422,
        "The plan's number of images is reached.", "Archive images that are no longer used, or upgrade the plan.",
    ),
    ErrorEntry(
        "assets.storage_limit_reached", _EXHAUSTED, 422,
        "The plan's storage is used up.", "Wait for open uploads to finish, or upgrade the plan.",
    ),
    ErrorEntry(
        "assets.too_many_open_uploads", _EXHAUSTED, 422,
        "Twenty uploads of this organization are open.", "Complete them, or wait until they expire.",
    ),
    ErrorEntry(
        "assets.upload_expired", _STATE, 422,
        "The upload was not completed in time.", "Request a new upload and send the file again.",
    ),
    ErrorEntry(
        "assets.upload_rejected", _STATE, 422,
        "The upload was refused.", "Read the asset's failure and request a new upload.",
    ),
    ErrorEntry(
        "assets.transition_invalid", _STATE, 422,
        "The asset's state does not allow this.", "Read the asset again; a failed or purging asset stays as it is.",
    ),
    ErrorEntry(
        "assets.restoration_expired", _STATE, 422,
        "An archived image can be restored for 30 days only.", "Upload the image again.",
    ),
    ErrorEntry(
        "assets.ai_generation_limit_reached", _EXHAUSTED, 422,
        "The plan's AI images of this month are used up.", "Wait for the next month, or upgrade the plan.",
    ),
    # --- why an asset failed, or why its job is tried again ----------------------------------------------------------
    ErrorEntry(
        "assets.upload_missing", _STATE, 422,
        "The file never arrived in storage.", "Upload the file again and complete it after the post succeeded.",
    ),
    ErrorEntry(
        "assets.size_mismatch", _STATE, 422,
        "The stored file is not of the announced size.", "Upload the file again with its exact size.",
    ),
    ErrorEntry(
        "assets.content_mismatch", _STATE, 422,
        "The file is not an image of the announced type.", "Save it again as JPEG, PNG, WebP or AVIF and upload that.",
    ),
    ErrorEntry(
        "assets.image_too_large", _STATE, 422,
        "The image has more pixels than can be processed.",
        "Scale it to at most 40 megapixels (12 for AVIF) and 12,000 pixels a side.",
    ),
    ErrorEntry(
        "assets.image_too_small", _STATE, 422,
        "A side of the image is shorter than 64 pixels.", "Use a larger image.",
    ),
    ErrorEntry(
        "assets.image_corrupt", _STATE, 422,
        "The image is damaged or incomplete.", "Open it in a photo app, save it again and upload the new file.",
    ),
    ErrorEntry(
        "assets.processing_exhausted", _STATE, 422,
        "The image could not be processed after five tries.", "Save it again in a photo app, or tell support.",
    ),
    ErrorEntry(
        "assets.erased", _STATE, 422,
        "The asset was erased on request.", "Nothing: it is being deleted and does not come back.",
    ),
    ErrorEntry(
        "assets.processing_error", grpc.StatusCode.INTERNAL, 500,
        "Processing failed and is tried again.", "Nothing: it is tried again by itself.",
    ),
    ErrorEntry(
        "assets.storage_refused", grpc.StatusCode.INTERNAL, 500,
        "Object storage refused a request of ours.", "Tell the operator: keys or policies of the bucket are wrong.",
    ),
    ErrorEntry(
        "assets.job_abandoned", _ABORTED, 409,
        "The asset no longer waited for this work.", "Nothing: the asset was settled by something else.",
    ),
    ErrorEntry(
        "assets.lease_expired", _ABORTED, 409,
        "The worker died or stalled before it reported.", "Nothing: another worker takes the work.",
    ),
)  # fmt: skip

REGISTRY: Mapping[str, ErrorEntry] = MappingProxyType({entry.code: entry for entry in _ENTRIES})
"""Every public code, in the order of the documentation."""

if len(REGISTRY) != len(_ENTRIES):
    raise RuntimeError("a public error code is registered twice")
