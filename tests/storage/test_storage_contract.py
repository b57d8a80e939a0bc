"""`ninaku storage check` and `apply` against the real server, right and wrong."""

import pytest

from libs.settings import StorageApplySettings, StorageCheckSettings, load
from libs.storage.clients import Provider
from libs.storage.errors import StorageUnavailable
from libs.storage.object_store import ObjectStore
from libs.storage.upload_policy import UploadPolicy, UploadPolicySigner
from services.cli.local.object_storage import REGION, LocalObjectStorage
from services.cli.storage_apply import apply
from services.cli.storage_contract import run_contract
from tests.support.object_storage import public_store_variables, upload_signing_variables, worker_storage_variables


def check_settings(storage: LocalObjectStorage, **changed: str) -> StorageCheckSettings:
    variables = {**upload_signing_variables(storage), **worker_storage_variables(storage), **changed}
    return load(StorageCheckSettings, variables)


def apply_settings(storage: LocalObjectStorage, **changed: str) -> StorageApplySettings:
    identifier, secret = storage.operator_key
    variables = {
        "ASSETS_S3_REGION": REGION,
        "ASSETS_S3_BUCKET": storage.private_bucket,
        "ASSETS_S3_ENDPOINT_URL": storage.endpoint_url,
        "ASSETS_S3_OPERATOR_ACCESS_KEY_ID": identifier,
        "ASSETS_S3_OPERATOR_SECRET_ACCESS_KEY": secret,
        "ASSETS_R2_ACCOUNT_ID": "local",
        "ASSETS_R2_PUBLIC_BUCKET": storage.public_bucket,
        "ASSETS_R2_OPERATOR_ACCESS_KEY_ID": identifier,
        "ASSETS_R2_OPERATOR_SECRET_ACCESS_KEY": secret,
        "ASSETS_R2_ENDPOINT_URL": storage.endpoint_url,
        **changed,
    }
    return load(StorageApplySettings, variables)


async def test_the_real_server_keeps_every_expectation(object_storage: LocalObjectStorage) -> None:
    lines: list[str] = []
    assert await run_contract(check_settings(object_storage), lines.append), lines
    assert len(lines) == 9
    assert all(line.startswith("ok ") for line in lines)


async def test_without_r2_the_contract_tries_the_s3_bucket_and_says_so(object_storage: LocalObjectStorage) -> None:
    lines: list[str] = []
    without_r2 = dict.fromkeys(public_store_variables(object_storage), "")
    assert await run_contract(check_settings(object_storage, **without_r2), lines.append), lines
    assert any("SKIPPED (no R2 credentials)" in line for line in lines)
    assert any("below a/ of the S3 bucket" in line and line.startswith("ok ") for line in lines)


async def test_a_policy_without_the_length_range_fails_the_contract(
    object_storage: LocalObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing = UploadPolicySigner.sign

    async def generous(
        self: UploadPolicySigner, key: str, media_type: str, max_bytes: int, expires_in_seconds: int
    ) -> UploadPolicy:
        return await signing(self, key, media_type, max_bytes * 2, expires_in_seconds)

    monkeypatch.setattr(UploadPolicySigner, "sign", generous)
    lines: list[str] = []
    assert not await run_contract(check_settings(object_storage), lines.append)
    assert [line for line in lines if line.startswith("FAILED ")] == [
        "FAILED  a form one byte over the declared size: 204, 65537 bytes stored (expected 400 EntityTooLarge)"
    ]


async def test_wrong_credentials_fail_the_contract_and_are_not_printed(object_storage: LocalObjectStorage) -> None:
    lines: list[str] = []
    settings = check_settings(object_storage, ASSETS_S3_WORKER_SECRET_ACCESS_KEY="wrong-and-unprinted")
    assert not await run_contract(settings, lines.append)
    assert "wrong-and-unprinted" not in "".join(lines)


async def test_the_contract_leaves_nothing_behind(
    object_storage: LocalObjectStorage, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[str, str]] = set()
    head = ObjectStore.head

    async def recording(self: ObjectStore, provider: str, key: str) -> int | None:
        seen.add((provider, key))
        return await head(self, provider, key)

    monkeypatch.setattr(ObjectStore, "head", recording)
    assert await run_contract(check_settings(object_storage), lambda _line: None)
    assert len(seen) >= 8
    for provider, key in seen:
        assert await head(object_store, provider, key) is None


async def test_a_server_elsewhere_is_not_touched_without_a_key_prefix(object_storage: LocalObjectStorage) -> None:
    lines: list[str] = []
    settings = check_settings(object_storage, ASSETS_S3_ENDPOINT_URL="https://storage.example.com")
    assert not await run_contract(settings, lines.append)
    assert len(lines) == 1
    assert "ASSETS_STORAGE_CONTRACT_KEY_PREFIX" in lines[0]


async def test_the_key_prefix_marks_every_key(
    object_storage: LocalObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()

    async def recording(self: ObjectStore, provider: str, key: str) -> None:
        seen.add(key)
        raise StorageUnavailable("remove", Provider(provider), "test")

    monkeypatch.setattr(ObjectStore, "remove", recording)
    settings = check_settings(object_storage, ASSETS_STORAGE_CONTRACT_KEY_PREFIX="contract-")
    assert not await run_contract(settings, lambda _line: None)
    assert seen
    assert all(key.split("/")[1].startswith("contract-") for key in seen)


async def test_apply_makes_both_buckets_as_described_and_check_alone_changes_nothing(
    object_storage: LocalObjectStorage,
) -> None:
    origin = {"NINAKU_CORS_ORIGINS": "https://till.example.com"}
    fresh = {"ASSETS_S3_BUCKET": "applied-assets", "ASSETS_R2_PUBLIC_BUCKET": "applied-media"}
    settings = apply_settings(object_storage, **origin, **fresh)
    lines: list[str] = []

    assert not await apply(settings, check_only=True, out=lines.append)
    assert not await apply(settings, check_only=True, out=lines.append)
    assert await apply(settings, check_only=False, out=lines.append), lines
    assert await apply(settings, check_only=True, out=lines.append), lines

    another = apply_settings(object_storage, **fresh, NINAKU_CORS_ORIGINS="https://other.example.com")
    lines.clear()
    assert not await apply(another, check_only=True, out=lines.append)
    assert [line for line in lines if line.startswith("FAILED ") and "CORS" in line]
    assert await apply(apply_settings(object_storage, **fresh), check_only=False, out=lines.append), lines


async def test_apply_reports_what_the_store_refuses(object_storage: LocalObjectStorage) -> None:
    identifier, secret = object_storage.worker_key
    settings = apply_settings(
        object_storage,
        ASSETS_S3_BUCKET="never-made",
        ASSETS_S3_OPERATOR_ACCESS_KEY_ID=identifier,
        ASSETS_S3_OPERATOR_SECRET_ACCESS_KEY=secret,
    )
    lines: list[str] = []
    assert not await apply(settings, check_only=False, out=lines.append)
    assert lines[0].startswith("FAILED  never-made: bucket: refused")
    assert secret not in "".join(lines)
