import os
from typing import Any

import pytest

from libs.settings import (
    AdmissionSettings,
    DeliverySettings,
    GatewaySettings,
    LibrarySettings,
    MediaWorkerSettings,
    ProcessingSettings,
    SettingsError,
    StorageApplySettings,
    StorageCheckSettings,
    StorageReconcileSettings,
    known_variables,
    load,
    process_variables,
)
from libs.settings.processes import ProcessSettings

LISTENER = {"NINAKU_LISTEN": "127.0.0.1:50051"}
DATABASE = {"DATABASE_URL": "postgresql://login:kept-quiet@127.0.0.1:5432/ninaku"}
BASE_URL = {"ASSETS_PUBLIC_BASE_URL": "https://media.example.com"}
BUCKET = {"ASSETS_S3_REGION": "us-east-1", "ASSETS_S3_BUCKET": "example-assets"}
SIGNING = {
    **BUCKET,
    **BASE_URL,
    "ASSETS_S3_API_ACCESS_KEY_ID": "AKEXAMPLEAPI",
    "ASSETS_S3_API_SECRET_ACCESS_KEY": "api-secret",
}
WORKER_STORAGE = {
    **BUCKET,
    **BASE_URL,
    "ASSETS_S3_WORKER_ACCESS_KEY_ID": "AKEXAMPLEWORKER",
    "ASSETS_S3_WORKER_SECRET_ACCESS_KEY": "worker-secret",
}
R2 = {
    "ASSETS_R2_ACCOUNT_ID": "0123456789abcdef",
    "ASSETS_R2_PUBLIC_BUCKET": "example-media",
    "ASSETS_R2_ACCESS_KEY_ID": "r2-key",
    "ASSETS_R2_SECRET_ACCESS_KEY": "r2-secret",
}
CLOUDFLARE = {"ASSETS_CDN_ZONE_ID": "0123456789abcdef", "ASSETS_CDN_PURGE_TOKEN": "purge-secret"}
CLOUDFRONT = {
    "ASSETS_CDN_DISTRIBUTION_ID": "E123EXAMPLE",
    "ASSETS_CDN_ACCESS_KEY_ID": "AKEXAMPLECDN",
    "ASSETS_CDN_SECRET_ACCESS_KEY": "cdn-secret",
}
VERIFICATION = {"NINAKU_SERVICE_TOKEN_PUBLIC_KEYS": '{"one": {"service": "ninaku-catalog", "key": "AAAA"}}'}
ADDRESSES = {
    "NINAKU_ADMISSION_ADDRESS": "admission:50051",
    "NINAKU_LIBRARY_ADDRESS": "library:50051",
    "NINAKU_DELIVERY_ADDRESS": "delivery:50051",
}
ENVIRONMENTS: dict[type[ProcessSettings], dict[str, str]] = {
    AdmissionSettings: {**LISTENER, **DATABASE, **SIGNING},
    LibrarySettings: {**LISTENER, **DATABASE, **BASE_URL},
    DeliverySettings: {**LISTENER, **DATABASE, **BASE_URL, **VERIFICATION},
    ProcessingSettings: {**LISTENER, **DATABASE, **VERIFICATION},
    MediaWorkerSettings: {**DATABASE, **WORKER_STORAGE, **R2},
    GatewaySettings: {**LISTENER, **ADDRESSES},
    StorageCheckSettings: {**SIGNING, **WORKER_STORAGE, **R2},
    StorageApplySettings: {
        **BUCKET,
        "ASSETS_S3_OPERATOR_ACCESS_KEY_ID": "AKEXAMPLEOPERATOR",
        "ASSETS_S3_OPERATOR_SECRET_ACCESS_KEY": "operator-secret",
    },
    StorageReconcileSettings: {
        **BUCKET,
        **BASE_URL,
        "ASSETS_S3_OPERATOR_ACCESS_KEY_ID": "AKEXAMPLEOPERATOR",
        "ASSETS_S3_OPERATOR_SECRET_ACCESS_KEY": "operator-secret",
    },
}


def without(variables: dict[str, str], name: str) -> dict[str, str]:
    return {other: value for other, value in variables.items() if other != name}


def problems_of(settings_type: type[ProcessSettings], variables: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        load(settings_type, variables)
    return refused.value.problems


@pytest.mark.parametrize("settings_type", ENVIRONMENTS, ids=lambda each: each.service_name)
def test_every_process_starts_with_its_own_environment(settings_type: type[ProcessSettings]) -> None:
    assert isinstance(load(settings_type, ENVIRONMENTS[settings_type]), settings_type)


@pytest.mark.case("A2a-1.04")
@pytest.mark.parametrize(
    ("settings_type", "rest", "group"),
    [
        (AdmissionSettings, {**LISTENER, **DATABASE}, SIGNING),
        (MediaWorkerSettings, DATABASE, WORKER_STORAGE),
        (MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE}, R2),
        (MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE, **R2}, CLOUDFLARE),
        (MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE}, CLOUDFRONT),
    ],
    ids=["upload signing", "worker storage", "R2", "Cloudflare purge", "CloudFront purge"],
)
def test_refuses_a_partial_assets_storage_group_and_accepts_none_or_all_of_it(
    settings_type: type[ProcessSettings], rest: dict[str, str], group: dict[str, str]
) -> None:
    load(settings_type, rest)
    load(settings_type, {**rest, **group})
    for name, value in group.items():
        # One variable missing, one variable alone, and an empty one, which is as good as missing.
        assert any(name in problem for problem in problems_of(settings_type, {**rest, **without(group, name)}))
        assert any(name in problem for problem in problems_of(settings_type, {**rest, **group, name: ""}))
        assert problems_of(settings_type, {**rest, name: value})


@pytest.mark.case("A2a-1.04")
def test_reads_every_variable_of_a_complete_group_and_none_of_an_absent_one() -> None:
    worker = load(MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE, **R2})
    assert worker.storage is not None
    assert worker.storage.region == "us-east-1"
    assert worker.storage.bucket == "example-assets"
    assert worker.storage.access_key_id == "AKEXAMPLEWORKER"
    assert worker.storage.secret_access_key.get_secret_value() == "worker-secret"
    assert worker.storage.public_base_url == "https://media.example.com"
    assert worker.public_store is not None
    assert worker.public_store.bucket == "example-media"
    assert load(MediaWorkerSettings, DATABASE).storage is None
    assert load(AdmissionSettings, {**LISTENER, **DATABASE}).upload_signing is None


@pytest.mark.case("A2a-1.04")
def test_refuses_an_endpoint_without_the_group_it_belongs_to() -> None:
    endpoint = {"ASSETS_S3_ENDPOINT_URL": "http://127.0.0.1:8333"}
    assert problems_of(MediaWorkerSettings, {**DATABASE, **endpoint})
    assert load(MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE, **endpoint}).storage is not None


def test_refuses_a_public_store_without_a_private_one() -> None:
    assert "R2" in problems_of(MediaWorkerSettings, {**DATABASE, **R2})[0]


@pytest.mark.parametrize(
    ("cdn", "blamed"),
    [
        ({**R2, **CLOUDFLARE, "ASSETS_CDN": "none"}, "only one of these groups may be set: Cloudflare purge, no CDN"),
        ({**CLOUDFLARE, **CLOUDFRONT}, "only one of these groups may be set: Cloudflare purge, CloudFront purge"),
        (CLOUDFLARE, "the Cloudflare purge group is for the R2 public store, which is not set"),
        ({**R2, **CLOUDFRONT}, "the CloudFront purge group is for the S3 bucket, but the R2 public store is set"),
        ({**R2, "ASSETS_CDN": "some"}, "ASSETS_CDN"),
        ({**R2, **CLOUDFLARE, "ASSETS_CDN_API_URL": "http://api.example.com"}, "ASSETS_CDN_API_URL"),
    ],
)
def test_refuses_two_cdns_a_cdn_before_the_wrong_store_and_a_token_in_the_clear(
    cdn: dict[str, str], blamed: str
) -> None:
    assert any(blamed in problem for problem in problems_of(MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE, **cdn}))


def test_reads_at_most_one_cdn() -> None:
    environment = {**DATABASE, **WORKER_STORAGE}
    worker = load(MediaWorkerSettings, {**environment, **R2, **CLOUDFLARE})
    assert worker.cloudflare is not None
    assert worker.cloudflare.api_url == "https://api.cloudflare.com/client/v4"
    assert "purge-secret" not in repr(worker)
    assert load(MediaWorkerSettings, {**environment, **CLOUDFRONT}).cloudfront is not None
    assert load(MediaWorkerSettings, {**environment, "ASSETS_CDN": "none"}).no_cdn is not None
    assert load(MediaWorkerSettings, {**environment, "ASSETS_CDN_API_URL": ""}).cloudflare is None


@pytest.mark.case("A2a-1.05")
@pytest.mark.parametrize("settings_type", ENVIRONMENTS, ids=lambda each: each.service_name)
def test_refuses_a_variable_of_another_process_roles_group(settings_type: type[ProcessSettings]) -> None:
    own = ENVIRONMENTS[settings_type]
    foreign = known_variables() - process_variables(settings_type)
    assert foreign
    for name in foreign:
        assert problems_of(settings_type, {**own, name: "misplaced"}) == (
            f"{name} belongs to another process and must not be set here",
        )


@pytest.mark.case("A2a-1.05")
def test_neither_the_api_reads_the_workers_keys_nor_the_worker_the_apis() -> None:
    for settings_type in (AdmissionSettings, LibrarySettings, DeliverySettings, ProcessingSettings, GatewaySettings):
        assert not {name for name in process_variables(settings_type) if "_WORKER_" in name or "_R2_" in name}
    assert not {name for name in process_variables(MediaWorkerSettings) if "_S3_API_" in name}
    assert "DATABASE_URL" not in process_variables(GatewaySettings)


@pytest.mark.case("A2a-1.05")
def test_leaves_variables_alone_that_no_process_has_heard_of() -> None:
    load(
        GatewaySettings, {**ENVIRONMENTS[GatewaySettings], "PATH": "/usr/bin", "AWS_ACCESS_KEY_ID": "of something else"}
    )


@pytest.mark.case("A2a-1.06")
def test_boots_the_media_worker_without_signing_keys_and_with_the_ninaku_media_worker_service_name() -> None:
    worker = load(MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE, **R2})
    assert worker.service_name == "ninaku-media-worker"
    assert not {name for name in process_variables(MediaWorkerSettings) if "SERVICE_TOKEN" in name or "CURSOR" in name}
    assert problems_of(MediaWorkerSettings, {**DATABASE, **VERIFICATION})


@pytest.mark.case("A2a-1.07")
@pytest.mark.parametrize(
    ("settings_type", "name"),
    [
        (DeliverySettings, "NINAKU_SERVICE_TOKEN_PUBLIC_KEYS"),
        (DeliverySettings, "DATABASE_URL"),
        (LibrarySettings, "DATABASE_URL"),
        (LibrarySettings, "ASSETS_PUBLIC_BASE_URL"),
        (AdmissionSettings, "DATABASE_URL"),
        (ProcessingSettings, "DATABASE_URL"),
        (MediaWorkerSettings, "DATABASE_URL"),
    ],
)
def test_still_requires_the_keys_that_a_service_needs(settings_type: type[ProcessSettings], name: str) -> None:
    problems = problems_of(settings_type, without(ENVIRONMENTS[settings_type], name))
    assert len(problems) == 1
    assert name in problems[0]


@pytest.mark.parametrize(
    "keys",
    ["", "no JSON", "[]", "{}", '{"one": "AAAA"}', '{"one": {"service": "x"}}', '{"one": {"service": "", "key": "A"}}'],
)
@pytest.mark.case("A2a-1.07")
def test_refuses_verification_keys_that_verify_nothing(keys: str) -> None:
    environment = {**ENVIRONMENTS[DeliverySettings], "NINAKU_SERVICE_TOKEN_PUBLIC_KEYS": keys}
    assert any("NINAKU_SERVICE_TOKEN_PUBLIC_KEYS" in problem for problem in problems_of(DeliverySettings, environment))


@pytest.mark.parametrize(
    ("settings_type", "name", "value"),
    [
        (MediaWorkerSettings, "ASSETS_IDLE_POLL_MS", "499"),
        (MediaWorkerSettings, "ASSETS_IDLE_POLL_MS", "60001"),
        (MediaWorkerSettings, "ASSETS_IMAGE_LEASE_SECONDS", "29"),
        (MediaWorkerSettings, "ASSETS_IMAGE_LEASE_SECONDS", "901"),
        (MediaWorkerSettings, "ASSETS_IMAGE_LEASE_SECONDS", "two"),
        (MediaWorkerSettings, "DATABASE_URL", "mysql://login:kept-quiet@host/ninaku"),
        (MediaWorkerSettings, "ASSETS_S3_BUCKET", "Not A Bucket"),
        (LibrarySettings, "ASSETS_PUBLIC_BASE_URL", "http://media.example.com"),
        (LibrarySettings, "NINAKU_LISTEN", "50051"),
        (LibrarySettings, "NINAKU_LOG_FORMAT", "xml"),
        (AdmissionSettings, "ASSETS_DATA_POLICY_PUBLISHED", "maybe"),
        (GatewaySettings, "NINAKU_CORS_ORIGINS", "https://one.example,*"),
    ],
)
def test_refuses_a_value_that_does_not_fit_by_the_variables_name(
    settings_type: type[ProcessSettings], name: str, value: str
) -> None:
    problems = problems_of(settings_type, {**ENVIRONMENTS[settings_type], name: value})
    assert [problem for problem in problems if problem.startswith(name)]


def test_defaults_are_those_of_the_specification() -> None:
    worker = load(MediaWorkerSettings, DATABASE)
    assert (worker.image_loop.idle_poll_ms, worker.image_loop.lease_seconds) == (2_000, 120)
    admission = load(AdmissionSettings, {**LISTENER, **DATABASE})
    assert admission.data_policy.published is False
    assert load(GatewaySettings, ENVIRONMENTS[GatewaySettings]).cross_origin.origins == ()


def test_no_secret_is_printed_or_named_in_a_refusal() -> None:
    secrets = ("kept-quiet", "worker-secret", "r2-secret")
    worker = load(MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE, **R2})
    shown = repr(worker) + str(worker)
    environment = {
        **DATABASE,
        **WORKER_STORAGE,
        **R2,
        "DATABASE_URL": "kept-quiet",
        "ASSETS_R2_PUBLIC_BUCKET": "r2-secret!",
    }
    refused = "\n".join(problems_of(MediaWorkerSettings, environment))
    for secret in secrets:
        assert secret not in shown
        assert secret not in refused


def test_reads_the_processes_own_environment_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in known_variables() & os.environ.keys():
        monkeypatch.delenv(name)
    for name, value in ENVIRONMENTS[LibrarySettings].items():
        monkeypatch.setenv(name, value)
    assert load(LibrarySettings).listener.port == 50051


def test_a_group_built_in_code_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from libs.settings.groups import Observability

    monkeypatch.setenv("NINAKU_LOG_LEVEL", "DEBUG")
    assert Observability().log_level == "INFO"


def test_settings_are_frozen() -> None:
    worker: Any = load(MediaWorkerSettings, {**DATABASE, **WORKER_STORAGE})
    with pytest.raises(AttributeError):
        worker.storage = None
    with pytest.raises(ValueError, match="frozen"):
        worker.storage.bucket = "another"
