from pathlib import Path

import pytest
from pydantic import SecretStr

from libs.settings.groups import PublicStore, StorageOperator, UploadSigning, WorkerStorage
from libs.storage.clients import (
    Provider,
    StorageAccount,
    open_buckets,
    open_client,
    r2_account,
    s3_account,
    worker_layout,
)

SECRET = SecretStr("assets-secret")
SIGNING = UploadSigning(
    public_base_url="https://media.example.com",
    region="us-east-1",
    bucket="example-assets",
    access_key_id="AKASSETSAPI",
    secret_access_key=SECRET,
)
WORKER = WorkerStorage(
    public_base_url="https://media.example.com",
    region="us-east-1",
    bucket="example-assets",
    access_key_id="AKASSETSWORKER",
    secret_access_key=SECRET,
)
OPERATOR = StorageOperator(
    region="us-east-1", bucket="example-assets", access_key_id="AKASSETSOPERATOR", secret_access_key=SECRET
)
R2 = PublicStore(
    account_id="0123456789abcdef", bucket="example-media", access_key_id="AKASSETSR2", secret_access_key=SECRET
)


@pytest.fixture
def foreign_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Everything that the default chain would pick up: variables, a profile, files, an endpoint."""
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id = AKOFAFILE\naws_secret_access_key = wrong\n")
    config = tmp_path / "config"
    config.write_text("[default]\nregion = eu-west-3\nendpoint_url = http://127.0.0.1:1\n")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKOFTHEENVIRONMENT",
        "AWS_SECRET_ACCESS_KEY": "wrong",
        "AWS_SESSION_TOKEN": "wrong",
        "AWS_SHARED_CREDENTIALS_FILE": str(credentials),
        "AWS_CONFIG_FILE": str(config),
        "AWS_PROFILE": "missing",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_DEFAULT_REGION": "eu-west-3",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.case("A2a-2.01")
@pytest.mark.usefixtures("foreign_environment")
@pytest.mark.parametrize(
    ("account", "access_key", "host"),
    [
        (s3_account(SIGNING), "AKASSETSAPI", "https://s3.us-east-1.amazonaws.com"),
        (s3_account(WORKER), "AKASSETSWORKER", "https://s3.us-east-1.amazonaws.com"),
        (s3_account(OPERATOR), "AKASSETSOPERATOR", "https://s3.us-east-1.amazonaws.com"),
        (r2_account(R2), "AKASSETSR2", "https://0123456789abcdef.r2.cloudflarestorage.com"),
    ],
    ids=["api", "worker", "operator", "r2"],
)
async def test_builds_every_storage_client_with_explicit_credentials_and_never_from_the_default_credential_chain(
    account: StorageAccount, access_key: str, host: str
) -> None:
    async with open_client(account) as client:
        credentials = await client._request_signer._credentials.get_frozen_credentials()  # type: ignore[attr-defined]
        assert (credentials.access_key, credentials.secret_key, credentials.token) == (
            access_key,
            "assets-secret",
            None,
        )
        assert client.meta.endpoint_url == host
        assert client.meta.region_name in ("us-east-1", "auto")


@pytest.mark.case("A2a-2.04")
@pytest.mark.usefixtures("foreign_environment")
async def test_builds_the_r2_client_with_its_account_endpoint_region_auto_and_checksums_only_when_required() -> None:
    async with open_client(r2_account(R2)) as client:
        assert client.meta.endpoint_url == "https://0123456789abcdef.r2.cloudflarestorage.com"
        assert client.meta.region_name == "auto"
        config = client.meta.config
        assert config.request_checksum_calculation == "when_required"  # type: ignore[attr-defined]
        assert config.response_checksum_validation == "when_required"  # type: ignore[attr-defined]


async def test_the_s3_client_keeps_checksums_and_signs_for_the_buckets_regional_host() -> None:
    async with open_client(s3_account(SIGNING)) as client:
        assert client.meta.config.request_checksum_calculation == "when_supported"  # type: ignore[attr-defined]
        signed = await client.generate_presigned_post("example-assets", "in/token")
        assert signed["url"] == "https://example-assets.s3.us-east-1.amazonaws.com/"


async def test_every_client_bounds_its_waits_and_its_attempts() -> None:
    async with open_client(s3_account(WORKER)) as client:
        assert client.meta.config.connect_timeout == 5.0  # type: ignore[attr-defined]
        assert client.meta.config.read_timeout == 15.0  # type: ignore[attr-defined]
        assert client.meta.config.retries["total_max_attempts"] == 3  # type: ignore[attr-defined]


async def test_public_renditions_go_to_r2_when_it_is_configured_and_else_to_the_s3_bucket_with_the_same_client() -> (
    None
):
    with_r2 = worker_layout(WORKER, R2)
    assert with_r2.public_provider is Provider.R2_PUBLIC
    assert set(with_r2.accounts) == {Provider.S3_PRIVATE, Provider.R2_PUBLIC}

    plan_b = worker_layout(WORKER, None)
    assert plan_b.public_provider is Provider.S3_PUBLIC
    async with open_buckets(plan_b.accounts) as buckets:
        assert buckets[Provider.S3_PUBLIC] == buckets[Provider.S3_PRIVATE]
        assert buckets[Provider.S3_PUBLIC].name == "example-assets"


def test_no_account_prints_its_secret() -> None:
    assert "assets-secret" not in repr(s3_account(SIGNING))
