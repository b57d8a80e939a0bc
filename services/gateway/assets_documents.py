"""The JSON of the asset routes: what a request must be, and what the documents look like."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from libs.assets.media_types import MAX_UPLOAD_BYTES

_Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
_Moment = Annotated[str, Field(description="UTC with milliseconds.", json_schema_extra={"format": "date-time"})]
_MediaType = Annotated[str, StringConstraints(max_length=255, pattern=r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$")]
_BoundedText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255)]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


class _Document(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=_camel, validate_by_name=False, validate_by_alias=True
    )


class UploadIntent(_Document):
    """What is going to be uploaded."""

    media_type: _MediaType = Field(
        description="`image/jpeg`, `image/png`, `image/webp` or `image/avif`.",
        json_schema_extra={"example": "image/jpeg"},
    )
    byte_size: int = Field(
        ge=1,
        description=f"Exact size of the file in bytes, at most {MAX_UPLOAD_BYTES:,}.",
        json_schema_extra={"example": 2_483_211},
    )
    access_class: Literal["public", "private", "sensitive"] = Field(
        description="Who may reach the image; it never changes."
    )
    display_name: _BoundedText = Field(
        default="", description="A name for people.", json_schema_extra={"example": "Hamburguesa clásica"}
    )
    original_filename: _BoundedText = Field(
        default="", description="The file's own name.", json_schema_extra={"example": "hamburguesa.jpg"}
    )


class ShortAsset(_Document):
    """An asset that was just requested."""

    id: _Uuid
    status: Literal["pending", "processing", "ready", "failed", "purging"]
    access_class: Literal["public", "private", "sensitive"]
    media_kind: Literal["image"]
    source_kind: Literal["upload", "ai_generated"]
    display_name: str | None
    created_at: _Moment


class UploadForm(_Document):
    """The form to post the file with: every field of `fields` first, then the field `file`."""

    id: _Uuid = Field(description="The upload, to be named in its completion.")
    method: Literal["POST"]
    url: str = Field(description="The object storage that takes the form, as `multipart/form-data`.")
    fields: dict[str, str] = Field(description="Form fields, to be sent exactly as given and before the file.")
    max_bytes: int = Field(description="The declared size; the storage refuses more.")
    expires_at: _Moment = Field(description="When the form stops being accepted.")


class RequestedUpload(_Document):
    """The asset and the form of its upload."""

    asset: ShortAsset
    upload: UploadForm | None = Field(
        description="Null on a replay whose upload was already received, refused or has expired."
    )


class RequestedUploadEnvelope(_Document):
    """Answer to a requested upload."""

    data: RequestedUpload


class RenditionLink(_Document):
    """Where a rendition is."""

    url: str


class Renditions(_Document):
    """The renditions; each is null unless the asset is ready and public."""

    thumbnail: RenditionLink | None = Field(description="160 × 160 pixels, cropped.")
    tile: RenditionLink | None = Field(description="320 × 320 pixels, cropped.")
    card: RenditionLink | None = Field(description="Within 640 × 640 pixels.")
    detail: RenditionLink | None = Field(description="Within 1280 × 1280 pixels.")


class Failure(_Document):
    """Why an asset failed, for people."""

    message: str
    remedy: str


class AssetDocument(_Document):
    """An asset as it is now."""

    id: _Uuid
    status: Literal["pending", "processing", "ready", "failed", "purging"]
    access_class: Literal["public", "private", "sensitive"]
    media_kind: Literal["image"]
    source_kind: Literal["upload", "ai_generated"]
    display_name: str | None
    original_filename: str | None
    width: int | None = Field(description="Of the master, upright, in pixels; null until ready.")
    height: int | None = Field(description="Of the master, upright, in pixels; null until ready.")
    byte_size: int | None = Field(description="Of the master; null until ready.")
    created_at: _Moment
    ready_at: _Moment | None
    archived_at: _Moment | None
    failure_code: str | None = Field(description="Why it failed, such as `assets.image_corrupt`; else null.")
    failure: Failure | None
    ai_generated: bool
    renditions: Renditions


class AssetEnvelope(_Document):
    """Answer that holds one asset."""

    data: AssetDocument
