"""The asset as a protobuf message, and the JSON document that message becomes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from ninaku.assets.v1 import resources_pb2 as pb

from libs.assets.asset import AccessClass, Asset, AssetStatus, MediaKind, SourceKind
from libs.assets.public_urls import PublicUrls
from libs.assets.rendition_profile import RENDITIONS
from libs.errors.registry import REGISTRY

STATUS_VALUES: Final[Mapping[AssetStatus, "pb.AssetStatus.ValueType"]] = MappingProxyType(
    {
        AssetStatus.PENDING: pb.ASSET_STATUS_PENDING,
        AssetStatus.PROCESSING: pb.ASSET_STATUS_PROCESSING,
        AssetStatus.READY: pb.ASSET_STATUS_READY,
        AssetStatus.FAILED: pb.ASSET_STATUS_FAILED,
        AssetStatus.PURGING: pb.ASSET_STATUS_PURGING,
    }
)
ACCESS_CLASS_VALUES: Final[Mapping[AccessClass, "pb.AccessClass.ValueType"]] = MappingProxyType(
    {
        AccessClass.PUBLIC: pb.ACCESS_CLASS_PUBLIC,
        AccessClass.PRIVATE: pb.ACCESS_CLASS_PRIVATE,
        AccessClass.SENSITIVE: pb.ACCESS_CLASS_SENSITIVE,
    }
)
MEDIA_KIND_VALUES: Final[Mapping[MediaKind, "pb.MediaKind.ValueType"]] = MappingProxyType(
    {MediaKind.IMAGE: pb.MEDIA_KIND_IMAGE}
)
SOURCE_KIND_VALUES: Final[Mapping[SourceKind, "pb.SourceKind.ValueType"]] = MappingProxyType(
    {
        SourceKind.UPLOAD: pb.SOURCE_KIND_UPLOAD,
        SourceKind.AI_GENERATED: pb.SOURCE_KIND_AI_GENERATED,
    }
)

_UNREGISTERED_FAILURE: Final = ("The image could not be processed.", "Upload it again, or save it in another format.")


def asset_to_message(asset: Asset, urls: PublicUrls | None) -> pb.Asset:
    """The wire form of an asset (§9.2): every rendition of its profile, with a URL only for a ready, public asset.

    `urls` is None where no public base is configured: then no rendition has a URL. The master never has one.
    """
    return pb.Asset(
        id=str(asset.id),
        status=STATUS_VALUES[asset.status],
        access_class=ACCESS_CLASS_VALUES[asset.access_class],
        media_kind=MEDIA_KIND_VALUES[asset.media_kind],
        source_kind=SOURCE_KIND_VALUES[asset.source_kind],
        display_name=asset.display_name,
        original_filename=asset.original_filename,
        width=asset.width,
        height=asset.height,
        byte_size=asset.byte_size,
        created_at=_timestamp(asset.created_at),
        ready_at=_timestamp(asset.ready_at),
        archived_at=_timestamp(asset.archived_at),
        failure=_failure(asset.failure_code),
        ai_generated=asset.source_kind is SourceKind.AI_GENERATED,
        renditions=[
            pb.Rendition(
                name=rendition.name,
                url=(
                    urls.rendition(asset.delivery_token, asset.rendition_profile, rendition.name)
                    if urls is not None and asset.has_public_renditions
                    else None
                ),
            )
            for rendition in RENDITIONS.get(asset.rendition_profile, ())
        ],
    )


def asset_document(message: pb.Asset) -> dict[str, Any]:
    """The camelCase JSON document of §9.2: what the owning service tags and what the gateway serves, unchanged.

    Absent values are null. Times are UTC with milliseconds (`2026-10-06T14:03:11.402Z`). `failure` holds the message
    and the remedy of `failureCode`.
    """
    failed = message.HasField("failure")
    return {
        "id": message.id,
        "status": asset_status_word(message.status),
        "accessClass": access_class_word(message.access_class),
        "mediaKind": pb.MediaKind.Name(message.media_kind).removeprefix("MEDIA_KIND_").lower(),
        "sourceKind": pb.SourceKind.Name(message.source_kind).removeprefix("SOURCE_KIND_").lower(),
        "displayName": message.display_name if message.HasField("display_name") else None,
        "originalFilename": message.original_filename if message.HasField("original_filename") else None,
        "width": message.width if message.HasField("width") else None,
        "height": message.height if message.HasField("height") else None,
        "byteSize": message.byte_size if message.HasField("byte_size") else None,
        "createdAt": timestamp_text(message.created_at) if message.HasField("created_at") else None,
        "readyAt": timestamp_text(message.ready_at) if message.HasField("ready_at") else None,
        "archivedAt": timestamp_text(message.archived_at) if message.HasField("archived_at") else None,
        "failureCode": message.failure.code if failed else None,
        "failure": {"message": message.failure.message, "remedy": message.failure.remedy} if failed else None,
        "aiGenerated": message.ai_generated,
        "renditions": {
            rendition.name: {"url": rendition.url} if rendition.HasField("url") else None
            for rendition in message.renditions
        },
    }


def asset_status_word(value: "pb.AssetStatus.ValueType") -> str:
    """A status as SQL and JSON spell it (`ready`)."""
    return pb.AssetStatus.Name(value).removeprefix("ASSET_STATUS_").lower()


def access_class_word(value: "pb.AccessClass.ValueType") -> str:
    """An access class as SQL and JSON spell it (`public`)."""
    return pb.AccessClass.Name(value).removeprefix("ACCESS_CLASS_").lower()


def timestamp_text(timestamp: Timestamp) -> str:
    """A protobuf timestamp as UTC ISO 8601 text with milliseconds and `Z`."""
    moment = datetime.fromtimestamp(timestamp.seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp.nanos // 1_000_000:03d}Z"


def _timestamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp


def _failure(code: str | None) -> pb.AssetFailure | None:
    if code is None:
        return None
    entry = REGISTRY.get(code)
    message, remedy = _UNREGISTERED_FAILURE if entry is None else (entry.message, entry.remedy)
    return pb.AssetFailure(code=code, message=message, remedy=remedy)
