"""The routes of assets (§9, §10): intent, completion, reading."""

from typing import Any, Final

from libs.errors.refusal import FieldViolation, invalid
from services.gateway.assets_documents import AssetEnvelope, RequestedUploadEnvelope, UploadIntent
from services.gateway.bodies import read_model, refuse_body, refuse_query
from services.gateway.clients import AdmissionClient, LibraryClient, NotModified, UploadRequest
from services.gateway.exchange import NO_STORE, Answer, Header, Request, header, json_answer
from services.gateway.headers import caller, idempotency_key
from services.gateway.operations import Operation, Parameter, Success

_REVALIDATE: Final[Header] = (b"cache-control", b"private, no-cache")
_VARY: Final[Header] = (b"vary", b"Authorization, Cookie, X-Organization-Id")
_LONGEST_CONDITION: Final = 4_096

_UUID_SCHEMA: Final[dict[str, Any]] = {"type": "string", "format": "uuid"}
_ORGANIZATION: Final = Parameter(
    "X-Organization-Id", "header", "UUID of the organization you act for. No cookie stands in for it.", _UUID_SCHEMA
)
_REQUEST_ID: Final = Parameter(
    "X-Request-Id",
    "header",
    "1 to 64 of `A-Z a-z 0-9 . _ -`, to find the request in logs; anything else is replaced.",
    {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    required=False,
)
_COMMON_REFUSALS: Final = (
    "foundation.validation_failed",
    "identity.unauthenticated",
    "tenant.context_rejected",
    "assets.action_forbidden",
    "foundation.unavailable",
    "foundation.deadline_exceeded",
)
_NO_STORE_MEANING: Final = ("Cache-Control", "`no-store`.")
_ETAG_MEANING: Final = ("ETag", "Strong tag of the asset's document.")


def assets_operations(admission: AdmissionClient, library: LibraryClient) -> tuple[Operation, ...]:
    """Return the operations of assets, served by the two clients."""
    routes = _AssetRoutes(admission, library)
    return (
        Operation(
            method="POST",
            path="/api/v1/assets/uploads",
            name="requestUpload",
            tag="Assets",
            summary="Request an upload",
            description=(
                "Reserves the asset and answers a form that binds key, type and size. Post every field of `fields`, "
                "then the file as the field `file`, as `multipart/form-data` to `url`; then complete the upload. "
                "Needs `assets.media.manage` and the capability `assets.media`. Safe to repeat under the same "
                "`Idempotency-Key`: the answer is the asset as it is now, with a fresh form while the upload is open."
            ),
            handler=routes.request_upload,
            authenticated=True,
            parameters=(
                _ORGANIZATION,
                Parameter("Idempotency-Key", "header", "UUID of version 4 or 7 that names this intent.", _UUID_SCHEMA),
                _REQUEST_ID,
            ),
            body=UploadIntent,
            successes=(
                Success(
                    201,
                    "The asset and the form. The form holds a signature: keep it to yourself.",
                    RequestedUploadEnvelope,
                    (
                        _NO_STORE_MEANING,
                        ("Location", "Where the asset is read."),
                        ("Idempotent-Replayed", "`true` when an earlier request with this key made the asset."),
                    ),
                ),
            ),
            refusals=(
                *_COMMON_REFUSALS,
                "foundation.malformed_body",
                "foundation.body_too_large",
                "foundation.body_incomplete",
                "foundation.media_type_required",
                "foundation.rate_limited",
                "platform.capability_not_entitled",
                "idempotency.key_reused",
                "idempotency.in_progress",
                "assets.media_type_unsupported",
                "assets.file_too_large",
                "assets.access_class_unavailable",
                "assets.asset_limit_reached",
                "assets.storage_limit_reached",
                "assets.too_many_open_uploads",
                "assets.asset_refused",
                "assets.storage_unavailable",
            ),
        ),
        Operation(
            method="POST",
            path="/api/v1/assets/uploads/{uploadId}/completion",
            name="completeUpload",
            tag="Assets",
            summary="Complete an upload",
            description=(
                "Tells that the file was posted, which queues its processing. Takes no body. Needs "
                "`assets.media.manage`. Safe to repeat: the answer is the asset as it is now."
            ),
            handler=routes.complete_upload,
            authenticated=True,
            parameters=(
                Parameter("uploadId", "path", "UUID of the upload.", _UUID_SCHEMA),
                _ORGANIZATION,
                _REQUEST_ID,
            ),
            successes=(
                Success(
                    202, "Noted; read the asset until it is ready.", AssetEnvelope, (_NO_STORE_MEANING, _ETAG_MEANING)
                ),
            ),
            refusals=(
                *_COMMON_REFUSALS,
                "foundation.body_too_large",
                "foundation.body_incomplete",
                "assets.not_found",
                "assets.upload_expired",
                "assets.upload_rejected",
                "assets.asset_refused",
            ),
        ),
        Operation(
            method="GET",
            path="/api/v1/assets/{assetId}",
            name="getAsset",
            tag="Assets",
            summary="Read an asset",
            description=(
                "The asset as it is now, with the URLs of its renditions once it is ready and public. Needs "
                "`assets.media.view`. Unknown, malformed and foreign ids are answered alike."
            ),
            handler=routes.get_asset,
            authenticated=True,
            parameters=(
                Parameter("assetId", "path", "UUID of the asset.", _UUID_SCHEMA),
                _ORGANIZATION,
                Parameter(
                    "If-None-Match",
                    "header",
                    "Tags that you hold; a match answers 304.",
                    {"type": "string"},
                    required=False,
                ),
                _REQUEST_ID,
            ),
            successes=(
                Success(200, "The asset.", AssetEnvelope, (("Cache-Control", "`private, no-cache`."), _ETAG_MEANING)),
                Success(304, "You hold the present document.", None, (_ETAG_MEANING,)),
            ),
            refusals=(*_COMMON_REFUSALS, "assets.not_found"),
        ),
    )


class _AssetRoutes:
    def __init__(self, admission: AdmissionClient, library: LibraryClient) -> None:
        self._admission = admission
        self._library = library

    async def request_upload(self, request: Request) -> Answer:
        who = caller(request)
        refuse_query(request)
        key = idempotency_key(request)
        intent = await read_model(request, UploadIntent)
        requested = await self._admission.request_upload(
            who,
            key,
            UploadRequest(
                media_type=intent.media_type,
                byte_size=intent.byte_size,
                access_class=intent.access_class,
                display_name=intent.display_name or None,
                original_filename=intent.original_filename or None,
            ),
        )
        headers = [NO_STORE, header("Location", f"/api/v1/assets/{requested.asset_id}")]
        if requested.replayed:
            headers.append(header("Idempotent-Replayed", "true"))
        return json_answer(201, {"data": requested.document}, tuple(headers))

    async def complete_upload(self, request: Request) -> Answer:
        who = caller(request)
        refuse_query(request)
        await refuse_body(request)
        asset = await self._admission.complete_upload(who, request.path_parameters["uploadId"])
        return json_answer(202, {"data": asset.document}, (NO_STORE, header("ETag", asset.etag)))

    async def get_asset(self, request: Request) -> Answer:
        who = caller(request)
        refuse_query(request)
        condition = request.list_header(b"if-none-match")
        if len(condition) > _LONGEST_CONDITION:
            raise invalid(FieldViolation("If-None-Match", f"Send at most {_LONGEST_CONDITION} characters."))
        asset = await self._library.get_asset(who, request.path_parameters["assetId"], condition)
        headers = (header("ETag", asset.etag), _REVALIDATE, _VARY)
        if isinstance(asset, NotModified):
            return Answer(304, headers=headers)
        return json_answer(200, {"data": asset.document}, headers)
