"""The real S3 server, one per test process, started by the first test that asks for it."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from libs.settings.groups import PublicStore, UploadSigning, WorkerStorage
from libs.storage.clients import s3_account, worker_layout
from libs.storage.object_store import ObjectStore, open_object_store
from libs.storage.upload_policy import UploadPolicySigner, open_upload_policy_signer
from services.cli.local.object_storage import REGION, LocalObjectStorage


def upload_signing_variables(storage: LocalObjectStorage) -> dict[str, str]:
    """What admission's environment holds to sign for the local server."""
    return {
        "ASSETS_S3_REGION": REGION,
        "ASSETS_S3_BUCKET": storage.private_bucket,
        "ASSETS_S3_API_ACCESS_KEY_ID": storage.api_key[0],
        "ASSETS_S3_API_SECRET_ACCESS_KEY": storage.api_key[1],
        "ASSETS_S3_ENDPOINT_URL": storage.endpoint_url,
        "ASSETS_PUBLIC_BASE_URL": storage.public_base_url,
    }


def worker_storage_variables(storage: LocalObjectStorage) -> dict[str, str]:
    """What the worker's environment holds to reach both buckets of the local server."""
    return {
        "ASSETS_S3_REGION": REGION,
        "ASSETS_S3_BUCKET": storage.private_bucket,
        "ASSETS_S3_WORKER_ACCESS_KEY_ID": storage.worker_key[0],
        "ASSETS_S3_WORKER_SECRET_ACCESS_KEY": storage.worker_key[1],
        "ASSETS_S3_ENDPOINT_URL": storage.endpoint_url,
        "ASSETS_PUBLIC_BASE_URL": storage.public_base_url,
        **public_store_variables(storage),
    }


def public_store_variables(storage: LocalObjectStorage) -> dict[str, str]:
    """The local public bucket in R2's place; without these the worker follows plan B."""
    return {
        "ASSETS_R2_ACCOUNT_ID": "local",
        "ASSETS_R2_PUBLIC_BUCKET": storage.public_bucket,
        "ASSETS_R2_ACCESS_KEY_ID": storage.worker_key[0],
        "ASSETS_R2_SECRET_ACCESS_KEY": storage.worker_key[1],
        "ASSETS_R2_ENDPOINT_URL": storage.endpoint_url,
    }


@pytest.fixture(scope="session")
def object_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalObjectStorage]:
    """The running server with both buckets; tests keep apart by using keys of their own."""
    storage = LocalObjectStorage(tmp_path_factory.mktemp("object-storage"), die_with_parent=True)
    asyncio.run(storage.start())
    yield storage
    asyncio.run(storage.stop())


@pytest.fixture
async def object_store(object_storage: LocalObjectStorage) -> AsyncIterator[ObjectStore]:
    """The worker's store: the private bucket, and the public bucket in R2's place."""
    variables = worker_storage_variables(object_storage)
    layout = worker_layout(WorkerStorage.read(variables), PublicStore.read(variables))
    async with open_object_store(layout) as store:
        yield store


@pytest.fixture
async def plan_b_store(object_storage: LocalObjectStorage) -> AsyncIterator[ObjectStore]:
    """The worker's store without R2: public renditions below `a/` of the private bucket."""
    layout = worker_layout(WorkerStorage.read(worker_storage_variables(object_storage)), None)
    async with open_object_store(layout) as store:
        yield store


@pytest.fixture
async def upload_policy_signer(object_storage: LocalObjectStorage) -> AsyncIterator[UploadPolicySigner]:
    """Admission's signer for the private bucket."""
    account = s3_account(UploadSigning.read(upload_signing_variables(object_storage)))
    async with open_upload_policy_signer(account) as signer:
        yield signer
