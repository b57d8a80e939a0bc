"""Bytes by provider and key."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError

from libs.storage.clients import Provider, StorageBucket, StorageLayout, open_buckets
from libs.storage.errors import StorageError, StorageRefused, StorageUnavailable

_CHUNK_BYTES: Final = 64 * 1024
_STAGING_PREFIX: Final = "in/"
_MISSING_CODES: Final = frozenset({"NoSuchKey", "NotFound", "404"})
_FORBIDDEN_CODES: Final = frozenset({"AccessDenied", "Forbidden", "403"})
_PASSING_CODES: Final = frozenset(
    {
        "InternalError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object as a listing shows it: its key, its size in bytes, and when it was last written (aware)."""

    key: str
    byte_size: int
    written_at: datetime


class ObjectStore:
    """Reads, writes and removes objects in the buckets behind the provider codes.

    Every method raises StorageUnavailable when trying later may help, StorageRefused when it will not, and KeyError for
    a provider that has no bucket here.
    """

    def __init__(
        self,
        buckets: Mapping[Provider, StorageBucket],
        public_provider: Provider,
        *,
        missing_answers_403: bool = False,
    ) -> None:
        self._buckets = buckets
        self._public_provider = public_provider
        self._missing_answers_403 = missing_answers_403

    @property
    def public_provider(self) -> Provider:
        """Where public renditions go: `r2-public`, or `s3-public` under plan B."""
        return self._public_provider

    async def head(self, provider: str, key: str) -> int | None:
        """The size of an object in bytes, or None when there is none."""
        bucket = self._bucket(provider)
        with _classified("head", provider):
            try:
                found = await bucket.client.head_object(Bucket=bucket.name, Key=key)
            except ClientError as error:
                if self._means_missing(key, error):
                    return None
                raise
        return found["ContentLength"]

    async def read_at_most(self, provider: str, key: str, max_bytes: int) -> bytes | None:
        """An object's bytes, or None when there is none.

        Stops one byte past `max_bytes`: a result longer than `max_bytes` says that the object is too, and no more of it
        is read.
        """
        bucket = self._bucket(provider)
        with _classified("read", provider):
            try:
                found = await bucket.client.get_object(Bucket=bucket.name, Key=key)
            except ClientError as error:
                if self._means_missing(key, error):
                    return None
                raise
            read = bytearray()
            body = found["Body"]
            try:
                while len(read) <= max_bytes:
                    chunk = await body.read(min(_CHUNK_BYTES, max_bytes + 1 - len(read)))
                    if not chunk:
                        break
                    read += chunk
            finally:
                # Closes the connection unless all was read, so that what was not read is never sent.
                body.close()
            return bytes(read)

    async def put(self, provider: str, key: str, data: bytes, content_type: str, cache_control: str | None) -> None:
        """Stores `data` under `key`, in place of whatever was there; both headers are served with it."""
        bucket = self._bucket(provider)
        with _classified("put", provider):
            if cache_control is None:
                await bucket.client.put_object(Bucket=bucket.name, Key=key, Body=data, ContentType=content_type)
            else:
                await bucket.client.put_object(
                    Bucket=bucket.name, Key=key, Body=data, ContentType=content_type, CacheControl=cache_control
                )

    async def remove(self, provider: str, key: str) -> None:
        """Removes an object; one that is not there counts as removed."""
        bucket = self._bucket(provider)
        with _classified("remove", provider):
            try:
                await bucket.client.delete_object(Bucket=bucket.name, Key=key)
            except ClientError as error:
                if _code(error) not in _MISSING_CODES:
                    raise

    async def pages(self, provider: str, prefix: str, after: str = "") -> AsyncIterator[tuple[ListedObject, ...]]:
        """Every object whose key starts with `prefix` and follows `after`, in the byte order of keys, 1,000 a page.

        What is written or removed meanwhile may or may not be among them. Needs the right to list.
        """
        bucket = self._bucket(provider)
        while True:
            with _classified("list", provider):
                found = await bucket.client.list_objects_v2(Bucket=bucket.name, Prefix=prefix, StartAfter=after)
            page = tuple(
                ListedObject(each["Key"], each["Size"], each["LastModified"]) for each in found.get("Contents", ())
            )
            if page:
                yield page
                # From the last key on, not from a token: a token of a server that was restarted may be forgotten.
                after = page[-1].key
            if not page or not found.get("IsTruncated"):
                return

    def _bucket(self, provider: str) -> StorageBucket:
        for known, bucket in self._buckets.items():
            if known == provider:
                return bucket
        raise KeyError(provider)

    def _means_missing(self, key: str, error: ClientError) -> bool:
        code = _code(error)
        if code in _MISSING_CODES:
            return True
        return self._missing_answers_403 and key.startswith(_STAGING_PREFIX) and code in _FORBIDDEN_CODES


@asynccontextmanager
async def open_object_store(layout: StorageLayout, *, missing_answers_403: bool = False) -> AsyncIterator[ObjectStore]:
    """A store with its clients, for as long as the context lasts.

    `missing_answers_403`: take 403 for a key below `in/` as "no such object", where the bucket is known to answer so.
    """
    async with open_buckets(layout.accounts) as buckets:
        yield ObjectStore(buckets, layout.public_provider, missing_answers_403=missing_answers_403)


@contextmanager
def _classified(operation: str, provider: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise _from_answer(operation, provider, error) from error
    except (ParamValidationError, NoCredentialsError) as error:
        raise StorageRefused(operation, provider, type(error).__name__) from error
    except (BotoCoreError, aiohttp.ClientError, OSError, TimeoutError) as error:
        # No answer at all, or one that broke off: name resolution, connection, TLS, timeout.
        raise StorageUnavailable(operation, provider, type(error).__name__) from error


def _from_answer(operation: str, provider: str, error: ClientError) -> StorageError:
    code = _code(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    passing = code in _PASSING_CODES or status >= 500 or status in (408, 429)
    return (StorageUnavailable if passing else StorageRefused)(operation, provider, code)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))
