"""The services behind the gateway: HTTP words in, HTTP documents out, everything of gRPC stays here."""

import re
from dataclasses import dataclass
from typing import Any, Final, cast

import grpc
from ninaku.admission.v1 import admission_pb2, admission_pb2_grpc
from ninaku.admission.v1.resources_pb2 import Upload
from ninaku.assets.v1 import resources_pb2
from ninaku.library.v1 import library_pb2, library_pb2_grpc

from libs.assets.messages import access_class_word, asset_document, asset_status_word, timestamp_text
from libs.errors.refusal import FieldViolation, Refusal
from libs.errors.status import refusal_from_rpc_error
from libs.rpc.client import Channel, MethodPolicy
from libs.rpc.metadata import outgoing_metadata
from services.gateway.headers import Caller

ADMISSION_POLICIES: Final = (
    MethodPolicy("ninaku.admission.v1.Admission", "RequestUpload", 10.0),
    MethodPolicy("ninaku.admission.v1.Admission", "CompleteUpload", 10.0, safe=True),
)
LIBRARY_POLICIES: Final = (MethodPolicy("ninaku.library.v1.Library", "GetAsset", 5.0, safe=True),)

_LARGEST_INT64: Final = 2**63 - 1
_ACCESS_CLASSES: Final = {
    "public": resources_pb2.ACCESS_CLASS_PUBLIC,
    "private": resources_pb2.ACCESS_CLASS_PRIVATE,
    "sensitive": resources_pb2.ACCESS_CLASS_SENSITIVE,
}
_HEADER_OF_FIELD: Final = {"idempotency_key": "Idempotency-Key"}
_SNAKE: Final = re.compile(r"_([a-z0-9])")


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """What a client says it is going to upload."""

    media_type: str
    """``type/subtype``."""
    byte_size: int
    """In bytes, at least 1; any size, however large."""
    access_class: str
    """``public``, ``private`` or ``sensitive``."""
    display_name: str | None
    """A name for people."""
    original_filename: str | None
    """The file's own name."""


@dataclass(frozen=True, slots=True)
class RequestedUpload:
    """Answer to a requested upload."""

    asset_id: str
    """UUID of the asset."""
    document: dict[str, Any]
    """``{"asset", "upload"}`` of §9.1; it holds a signature and is never logged."""
    replayed: bool
    """Whether an earlier request with the same key had made the asset."""


@dataclass(frozen=True, slots=True)
class TaggedAsset:
    """An asset's document (§9.2) and its tag."""

    document: dict[str, Any]
    """The document that the tag is of."""
    etag: str
    """Strong entity tag, quotes included."""


@dataclass(frozen=True, slots=True)
class NotModified:
    """The caller holds the asset's present document already."""

    etag: str
    """Strong entity tag, quotes included."""


class AdmissionClient:
    """Calls ``ninaku.admission.v1.Admission``."""

    def __init__(self, channel: Channel) -> None:
        """Keep a stub on the channel; the channel stays its owner's."""
        self._stub = admission_pb2_grpc.AdmissionStub(cast("grpc.aio.Channel", channel))

    async def request_upload(self, caller: Caller, key: str, upload: UploadRequest) -> RequestedUpload:
        """Request an upload under an idempotency key.

        Raises:
            Refusal: As ``Admission.RequestUpload``, fields under their HTTP names.
        """
        request = admission_pb2.RequestUploadRequest(
            idempotency_key=key,
            media_type=upload.media_type,
            # More than 64 bits is far over any limit and refused as too large, like everything over it.
            byte_size=min(upload.byte_size, _LARGEST_INT64),
            access_class=_ACCESS_CLASSES[upload.access_class],
            display_name=upload.display_name,
            original_filename=upload.original_filename,
        )
        try:
            response = await self._stub.RequestUpload(request, metadata=_metadata(caller))
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from error
        form = response.upload if response.HasField("upload") else None
        document = {"asset": _short_document(response.asset), "upload": None if form is None else _form_document(form)}
        return RequestedUpload(response.asset.id, document, response.replayed)

    async def complete_upload(self, caller: Caller, upload_id: str) -> TaggedAsset:
        """Tell that the file was posted.

        Raises:
            Refusal: As ``Admission.CompleteUpload``.
        """
        request = admission_pb2.CompleteUploadRequest(upload_id=upload_id)
        try:
            response = await self._stub.CompleteUpload(request, metadata=_metadata(caller))
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from error
        return TaggedAsset(asset_document(response.asset), response.etag)


class LibraryClient:
    """Calls ``ninaku.library.v1.Library``."""

    def __init__(self, channel: Channel) -> None:
        """Keep a stub on the channel; the channel stays its owner's."""
        self._stub = library_pb2_grpc.LibraryStub(cast("grpc.aio.Channel", channel))

    async def get_asset(self, caller: Caller, asset_id: str, if_none_match: str) -> TaggedAsset | NotModified:
        """Read one asset, unless the caller holds it already.

        Raises:
            Refusal: As ``Library.GetAsset``.
        """
        request = library_pb2.GetAssetRequest(asset_id=asset_id, if_none_match=if_none_match)
        try:
            response = await self._stub.GetAsset(request, metadata=_metadata(caller))
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from error
        if response.not_modified:
            return NotModified(response.etag)
        return TaggedAsset(asset_document(response.asset), response.etag)


def _metadata(caller: Caller) -> tuple[tuple[str, str], ...]:
    return outgoing_metadata(
        caller.request_id,
        ("authorization", f"Bearer {caller.session}"),
        ("x-organization-id", caller.organization_id),
    )


def _refusal(error: grpc.aio.AioRpcError) -> Refusal:
    refusal = refusal_from_rpc_error(error)
    if not refusal.violations:
        return refusal
    fields = tuple(FieldViolation(_http_name(one.field), one.description) for one in refusal.violations)
    return Refusal(refusal.code, meta=refusal.meta, violations=fields)


def _http_name(field: str) -> str:
    return _HEADER_OF_FIELD.get(field) or _SNAKE.sub(lambda match: match[1].upper(), field)


def _short_document(asset: resources_pb2.Asset) -> dict[str, Any]:
    return {
        "id": asset.id,
        "status": asset_status_word(asset.status),
        "accessClass": access_class_word(asset.access_class),
        "mediaKind": resources_pb2.MediaKind.Name(asset.media_kind).removeprefix("MEDIA_KIND_").lower(),
        "sourceKind": resources_pb2.SourceKind.Name(asset.source_kind).removeprefix("SOURCE_KIND_").lower(),
        "displayName": asset.display_name if asset.HasField("display_name") else None,
        "createdAt": timestamp_text(asset.created_at),
    }


def _form_document(form: Upload) -> dict[str, Any]:
    return {
        "id": form.id,
        "method": "POST",
        "url": form.url,
        "fields": dict(form.fields),
        "maxBytes": form.max_bytes,
        "expiresAt": timestamp_text(form.expires_at),
    }
