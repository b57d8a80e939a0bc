"""The handler of `process_upload`: from a staged object to a `ready` outcome (§12, §13)."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from libs.assets.object_keys import master_key, private_rendition_key, public_rendition_key
from libs.assets.rendition_profile import rendition_name
from services.processing.deadlines import storage_until
from services.processing.domain import (
    ORIGINAL_VARIANT,
    OUTPUT_MEDIA_TYPE,
    PUBLIC_CACHE_CONTROL,
    AccessClass,
    ClaimedJob,
    FailureCode,
    Outcome,
    OutcomeKind,
    PermanentFailure,
    RenderedImage,
    RenderedPhoto,
    StoredVariant,
    UploadNotYetStored,
)
from services.processing.storage import Objects
from services.processing.verification import RendersPhotos, verify_and_render

PRIVATE_PROVIDER: Final = "s3-private"
PRIVATE_CACHE_CONTROL: Final = "private, no-store"


@dataclass(frozen=True, slots=True)
class ProcessUpload:
    """Renders one upload and stores the results; records nothing and keeps no state between jobs.

    `new_id` makes UUIDv7 values, `now` gives the time with its zone.
    """

    objects: Objects
    decoder: RendersPhotos
    new_id: Callable[[], UUID]
    now: Callable[[], datetime]

    async def handle(self, job: ClaimedJob, deadline: float) -> Outcome:
        """Return the `ready` outcome; everything is stored by then.

        `deadline` is a time of the event loop's clock: storage that is not done by then is a storage retry, and a
        picture that is not decoded by then a processing error. Raises what `failure_classifier.classify` takes.
        """
        upload = _upload_of(job)
        async with storage_until(deadline):
            data = await self._read(upload)
        photo = await verify_and_render(
            data,
            upload.declared_media_type,
            upload.declared_byte_size,
            upload.rendition_profile,
            self.decoder,
            seconds=max(0.0, deadline - asyncio.get_running_loop().time()),
        )
        checksums = await asyncio.to_thread(_checksums, photo)
        places = [self._place(upload, image) for image in photo.images]
        async with storage_until(deadline):
            await _all(
                self.objects.put(place.provider_code, place.object_key, image.data, OUTPUT_MEDIA_TYPE, place.cache)
                for place, image in zip(places, photo.images, strict=True)
            )
        return Outcome(
            OutcomeKind.READY,
            variants=tuple(
                StoredVariant(
                    code=image.code,
                    variant_id=upload.original_variant_id if image.code == ORIGINAL_VARIANT else self.new_id(),
                    storage_object_id=self.new_id(),
                    provider_code=place.provider_code,
                    object_key=place.object_key,
                    media_type=OUTPUT_MEDIA_TYPE,
                    byte_size=len(image.data),
                    checksum=checksum,
                    width=image.width,
                    height=image.height,
                )
                for image, place, checksum in zip(photo.images, places, checksums, strict=True)
            ),
        )

    async def _read(self, upload: "_Upload") -> bytes:
        size = await self.objects.head(upload.staging_provider_code, upload.staging_object_key)
        if size is not None and size != upload.declared_byte_size:
            raise PermanentFailure(FailureCode.SIZE_MISMATCH)
        data = None
        if size is not None:
            # Never a byte more than one past the declared size: the object may have been replaced since.
            data = await self.objects.read_at_most(
                upload.staging_provider_code, upload.staging_object_key, upload.declared_byte_size
            )
        if data is None:
            if self.now() >= upload.expires_at:
                raise PermanentFailure(FailureCode.UPLOAD_MISSING)
            raise UploadNotYetStored
        return data

    def _place(self, upload: "_Upload", image: RenderedImage) -> "_Place":
        if image.code == ORIGINAL_VARIANT:
            return _Place(PRIVATE_PROVIDER, master_key(upload.delivery_token), PRIVATE_CACHE_CONTROL)
        name, profile = rendition_name(image.code), upload.rendition_profile
        if upload.access_class == AccessClass.PUBLIC:
            key = public_rendition_key(upload.delivery_token, profile, name)
            return _Place(self.objects.public_provider, key, PUBLIC_CACHE_CONTROL)
        key = private_rendition_key(upload.delivery_token, profile, name)
        return _Place(PRIVATE_PROVIDER, key, PRIVATE_CACHE_CONTROL)


@dataclass(frozen=True, slots=True)
class _Place:
    provider_code: str
    object_key: str
    cache: str


@dataclass(frozen=True, slots=True)
class _Upload:
    """The fields of a `process_upload` job, all of them there."""

    delivery_token: str
    access_class: str
    rendition_profile: int
    staging_provider_code: str
    staging_object_key: str
    declared_media_type: str
    declared_byte_size: int
    original_variant_id: UUID
    expires_at: datetime


def _upload_of(job: ClaimedJob) -> _Upload:
    values = (
        job.delivery_token,
        job.access_class,
        job.rendition_profile,
        job.staging_provider_code,
        job.staging_object_key,
        job.declared_media_type,
        job.declared_byte_size,
        job.original_variant_id,
        job.upload_expires_at,
    )
    if any(value is None for value in values):
        raise ValueError("a process_upload job lacks its upload")
    fields: tuple[Any, ...] = values
    return _Upload(*fields)


async def _all(writes: Iterable[Coroutine[Any, Any, None]]) -> None:
    # Waits for every one, so that no write of this attempt still runs when the next attempt starts.
    results = await asyncio.gather(*writes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _checksums(photo: RenderedPhoto) -> list[bytes]:
    return [hashlib.sha256(image.data).digest() for image in photo.images]
