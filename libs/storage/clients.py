"""One S3 client per account, always with the credentials it is given (§8).

The environment of a process may hold `AWS_*` variables meant for something else, so neither the default credential
chain nor the shared configuration files nor endpoint variables are ever read.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import aioboto3
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from pydantic import SecretStr

from libs.settings.groups import PublicStore, PublicStoreOperator, StorageOperator, UploadSigning, WorkerStorage

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

CONNECT_TIMEOUT_SECONDS: Final = 5.0
READ_TIMEOUT_SECONDS: Final = 15.0
ATTEMPTS: Final = 3


class Provider(StrEnum):
    """The provider codes of `assets.storage_providers`."""

    S3_PRIVATE = "s3-private"
    """Uploads and masters, in S3."""
    R2_PUBLIC = "r2-public"
    """Public renditions, in R2."""
    S3_PUBLIC = "s3-public"
    """Public renditions below `a/` of the S3 bucket: plan B."""


@dataclass(frozen=True, slots=True)
class StorageAccount:
    """One bucket and the identity that reaches it. `endpoint_url` None means AWS."""

    bucket: str
    region: str
    access_key_id: str
    secret_access_key: SecretStr
    endpoint_url: str | None = None
    checksums_only_when_required: bool = False


@dataclass(frozen=True, slots=True)
class StorageBucket:
    """A client and the bucket it works on."""

    client: "S3Client"
    name: str


@dataclass(frozen=True, slots=True)
class StorageLayout:
    """Which account stands behind each provider code, and which provider public renditions go to."""

    accounts: Mapping[Provider, StorageAccount]
    public_provider: Provider


def s3_account(group: UploadSigning | WorkerStorage | StorageOperator) -> StorageAccount:
    """The S3 bucket as one identity reaches it."""
    return StorageAccount(
        bucket=group.bucket,
        region=group.region,
        access_key_id=group.access_key_id,
        secret_access_key=group.secret_access_key,
        endpoint_url=group.endpoint_url,
    )


def r2_account(group: PublicStore | PublicStoreOperator) -> StorageAccount:
    """The R2 bucket: account endpoint, region `auto`, and no checksum header that R2 did not ask for (§8)."""
    return StorageAccount(
        bucket=group.bucket,
        region="auto",
        access_key_id=group.access_key_id,
        secret_access_key=group.secret_access_key,
        endpoint_url=group.endpoint_url or f"https://{group.account_id}.r2.cloudflarestorage.com",
        checksums_only_when_required=True,
    )


def worker_layout(storage: WorkerStorage, public_store: PublicStore | None) -> StorageLayout:
    """Where the worker's objects go: R2 for public renditions when it is configured, else the S3 bucket (plan B)."""
    private = s3_account(storage)
    if public_store is None:
        accounts = {Provider.S3_PRIVATE: private, Provider.S3_PUBLIC: private}
        return StorageLayout(MappingProxyType(accounts), Provider.S3_PUBLIC)
    accounts = {Provider.S3_PRIVATE: private, Provider.R2_PUBLIC: r2_account(public_store)}
    return StorageLayout(MappingProxyType(accounts), Provider.R2_PUBLIC)


def operator_layout(operator: StorageOperator, public_operator: PublicStoreOperator | None) -> StorageLayout:
    """Every place that objects can lie in, as the operator's identities reach them, whichever plan is in force."""
    private = s3_account(operator)
    accounts = {Provider.S3_PRIVATE: private, Provider.S3_PUBLIC: private}
    if public_operator is None:
        return StorageLayout(MappingProxyType(accounts), Provider.S3_PUBLIC)
    accounts[Provider.R2_PUBLIC] = r2_account(public_operator)
    return StorageLayout(MappingProxyType(accounts), Provider.R2_PUBLIC)


@asynccontextmanager
async def open_client(account: StorageAccount) -> AsyncIterator["S3Client"]:
    """An S3 client of one account, closed with the context.

    Three attempts per call, five seconds to connect, fifteen without a byte. A server other than AWS is addressed by
    path, AWS by the bucket's regional host name.
    """
    when = "when_required" if account.checksums_only_when_required else "when_supported"
    config = AioConfig(
        signature_version="s3v4",
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        ignore_configured_endpoint_urls=True,
        request_checksum_calculation=when,
        response_checksum_validation=when,
        s3={
            "addressing_style": "virtual" if account.endpoint_url is None else "path",
            "us_east_1_regional_endpoint": "regional",
        },
    )
    session = aioboto3.Session(botocore_session=isolated_session())
    async with session.client(
        "s3",
        region_name=account.region,
        endpoint_url=account.endpoint_url,
        aws_access_key_id=account.access_key_id,
        aws_secret_access_key=account.secret_access_key.get_secret_value(),
        config=config,
    ) as client:
        yield client


@asynccontextmanager
async def open_buckets(accounts: Mapping[Provider, StorageAccount]) -> AsyncIterator[Mapping[Provider, StorageBucket]]:
    """A bucket per provider code; codes that share an account share its client."""
    async with AsyncExitStack() as stack:
        clients: dict[StorageAccount, S3Client] = {}
        buckets: dict[Provider, StorageBucket] = {}
        for provider, account in accounts.items():
            if account not in clients:
                clients[account] = await stack.enter_async_context(open_client(account))
            buckets[provider] = StorageBucket(clients[account], account.bucket)
        yield MappingProxyType(buckets)


def isolated_session() -> AioSession:
    """A session that reads neither the environment nor any shared file."""
    nothing = (None, None, None, None)
    no_file = (None, None, os.devnull, None)
    return AioSession(
        session_vars={"profile": nothing, "config_file": no_file, "credentials_file": no_file, "ca_bundle": nothing}
    )
