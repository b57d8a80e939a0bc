"""Uploads as admission makes them, for tests that begin where the bytes have arrived."""

import secrets
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from libs.assets.object_keys import staging_key
from libs.assets.tokens import generate_delivery_token
from libs.assets.uuid7 import uuid7
from libs.storage.object_store import ObjectStore
from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization, add_person

CLASSES = ["public", "private", "sensitive"]


@dataclass(frozen=True)
class Upload:
    """One admission: its ids, the token of its asset, and where its bytes go."""

    asset_id: UUID
    upload_id: UUID
    original_variant_id: UUID
    delivery_token: str
    staging_key: str


class Uploads:
    """Reserves and completes uploads of one organization, as admission's login does."""

    def __init__(self, owner: Connection, admission: Connection, person: Person) -> None:
        self.owner = owner
        self.person = person
        self._admission = admission

    async def reserve(
        self,
        size: int,
        media_type: str = "image/jpeg",
        *,
        access_class: str = "public",
        expires_in_seconds: float = 900,
    ) -> Upload:
        """An issued upload of the declared size and type."""
        token = generate_delivery_token()
        upload = Upload(uuid7(), uuid7(), uuid7(), generate_delivery_token(), staging_key(token))
        async with self._admission.transaction():
            await self._open_context()
            await self._admission.fetchrow(
                "SELECT * FROM assets.reserve_upload($1, $2, $3, $4, $5, $6, $7, $8, 'A photo', 'photo.jpg', $9, $10,"
                " now() + make_interval(secs => $11), $12)",
                upload.asset_id,
                upload.original_variant_id,
                upload.upload_id,
                upload.delivery_token,
                token,
                media_type,
                size,
                access_class,
                uuid7(),
                secrets.token_hex(32),
                max(expires_in_seconds, 1.0),
                CLASSES,
            )
        if expires_in_seconds < 1.0:
            await self.owner.execute(
                "UPDATE assets.uploads SET created_at = created_at - interval '1 hour',"
                " expires_at = now() + make_interval(secs => $2) WHERE id = $1",
                upload.upload_id,
                expires_in_seconds,
            )
        return upload

    async def complete(self, upload: Upload, trace_context: str | None = None) -> None:
        """The upload's bytes are said to be there: one job is queued."""
        async with self._admission.transaction():
            await self._open_context()
            outcome = await self._admission.fetchval(
                "SELECT outcome FROM assets.complete_upload($1, $2)", upload.upload_id, trace_context
            )
        assert outcome == "completed"

    async def receive(
        self,
        store: ObjectStore,
        data: bytes,
        media_type: str = "image/jpeg",
        *,
        access_class: str = "public",
        declared_size: int | None = None,
    ) -> Upload:
        """An upload whose bytes are stored and whose job is queued."""
        size = len(data) if declared_size is None else declared_size
        upload = await self.reserve(size, media_type, access_class=access_class)
        await store.put("s3-private", upload.staging_key, data, media_type, None)
        await self.complete(upload)
        return upload

    async def asset(self, upload: Upload) -> Any:
        """The row of the upload's asset."""
        return await self.owner.fetchrow("SELECT * FROM assets.assets WHERE id = $1", upload.asset_id)

    async def state(self, upload: Upload) -> str:
        """The state of the upload."""
        state: str = await self.owner.fetchval("SELECT state FROM assets.uploads WHERE id = $1", upload.upload_id)
        return state

    async def job(self, upload: Upload) -> Any:
        """The row of the upload's job."""
        return await self.owner.fetchrow("SELECT * FROM assets.processing_jobs WHERE asset_id = $1", upload.asset_id)

    async def usage(self) -> tuple[int, int, int]:
        """Active assets, reserved bytes, stored bytes of the organization."""
        row = await self.owner.fetchrow(
            "SELECT active_asset_count, reserved_bytes, stored_bytes FROM assets.organization_usage"
            " WHERE organization_id = $1",
            self.person.organization_id,
        )
        return row["active_asset_count"], row["reserved_bytes"], row["stored_bytes"]

    async def _open_context(self) -> None:
        outcome = await self._admission.fetchval(
            "SELECT outcome FROM identity.open_tenant_context($1, $2, 'assets.media.manage', 'assets.media',"
            " 'admission', 'request')",
            self.person.token_hash,
            self.person.organization_id,
        )
        assert outcome == "authorized"


async def open_uploads(database: DatabaseUnderTest) -> Uploads:
    """The uploads of a new organization's owner."""
    owner = await database.owner()
    person = await add_person(owner, await add_organization(owner, f"Café {secrets.token_hex(4)}"))
    return Uploads(owner, await database.login("ninaku_admission"), person)
