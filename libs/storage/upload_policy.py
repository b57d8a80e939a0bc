"""Signed POST policies: what a browser may put into storage without any of our services touching the bytes."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from libs.storage.clients import StorageAccount, StorageBucket, open_client

LONGEST_POLICY_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class UploadPolicy:
    """A form to post: every field of `fields`, then the file as `file`, to `url`, before `expires_at` (aware)."""

    url: str
    fields: Mapping[str, str] = field(repr=False)
    expires_at: datetime


class UploadPolicySigner:
    """Signs policies for one bucket; nothing is sent to the store."""

    def __init__(self, bucket: StorageBucket) -> None:
        self._bucket = bucket

    async def sign(self, key: str, media_type: str, max_bytes: int, expires_in_seconds: int) -> UploadPolicy:
        """A policy for exactly `key` and `media_type`, and 1 to `max_bytes` bytes (§8).

        Raises ValueError when it would live longer than ten minutes, or admit nothing.
        """
        if not 1 <= expires_in_seconds <= LONGEST_POLICY_SECONDS:
            raise ValueError(f"an upload policy lives 1 to {LONGEST_POLICY_SECONDS} seconds")
        if max_bytes < 1:
            raise ValueError("an upload policy admits at least one byte")
        signed = await self._bucket.client.generate_presigned_post(
            Bucket=self._bucket.name,
            Key=key,
            Fields={"Content-Type": media_type},
            Conditions=[
                ["content-length-range", 1, max_bytes],
                ["eq", "$Content-Type", media_type],
                ["eq", "$key", key],
            ],
            ExpiresIn=expires_in_seconds,
        )
        fields: Mapping[str, str] = signed["fields"]
        expiration: str = json.loads(base64.b64decode(fields["policy"]))["expiration"]
        return UploadPolicy(url=signed["url"], fields=fields, expires_at=datetime.fromisoformat(expiration))


@asynccontextmanager
async def open_upload_policy_signer(account: StorageAccount) -> AsyncIterator[UploadPolicySigner]:
    """A signer with its client, for as long as the context lasts."""
    async with open_client(account) as client:
        yield UploadPolicySigner(StorageBucket(client, account.bucket))
