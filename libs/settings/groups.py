"""Every group of variables that any process reads."""

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr, StringConstraints, field_validator
from pydantic_settings import NoDecode

from libs.assets.public_urls import PublicUrls
from libs.settings.group import SettingsGroup

_Name = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]
_Bucket = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
_AccountId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
_Address = Annotated[str, StringConstraints(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$")]
_Origin = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.\[\]:-]+$")]
_ApiUrl = Annotated[
    str,
    StringConstraints(
        pattern=r"^(https://[A-Za-z0-9.-]+|http://(127\.0\.0\.1|localhost))(:[0-9]{1,5})?[A-Za-z0-9/._-]*$"
    ),
]
_Endpoint = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.\[\]:-]+/?$")]


class Observability(SettingsGroup):
    """Logs, traces and metrics; everything has a default."""

    title: ClassVar[str] = "observability"

    log_format: Literal["json", "console"] = Field(default="json", validation_alias="NINAKU_LOG_FORMAT")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", validation_alias="NINAKU_LOG_LEVEL")
    otlp_endpoint: str | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """Where spans and metrics go over OTLP/gRPC; without it nothing is exported."""


class Listener(SettingsGroup):
    """Where the process answers."""

    title: ClassVar[str] = "listener"

    listen: _Address = Field(validation_alias="NINAKU_LISTEN")
    """host:port; port 0 takes a free one."""

    @property
    def host(self) -> str:
        """The host of `listen`, without the brackets of an IPv6 address."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port of `listen`."""
        return int(self.listen.rpartition(":")[2])


class Database(SettingsGroup):
    """The process's own login."""

    title: ClassVar[str] = "database"

    url: SecretStr = Field(validation_alias="DATABASE_URL")

    @field_validator("url")
    @classmethod
    def _is_postgresql(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must start with postgresql://")
        return value


class PublicDelivery(SettingsGroup):
    """Where public renditions are served."""

    title: ClassVar[str] = "public delivery"

    public_base_url: str = Field(validation_alias="ASSETS_PUBLIC_BASE_URL")

    @field_validator("public_base_url")
    @classmethod
    def _is_a_base(cls, value: str) -> str:
        return PublicUrls(value).base_url


class UploadSigning(PublicDelivery):
    """What it takes to sign upload policies (§7): the API's S3 key may only put below `in/`."""

    title: ClassVar[str] = "upload signing"

    region: _Name = Field(validation_alias="ASSETS_S3_REGION")
    bucket: _Bucket = Field(validation_alias="ASSETS_S3_BUCKET")
    access_key_id: _Name = Field(validation_alias="ASSETS_S3_API_ACCESS_KEY_ID")
    secret_access_key: SecretStr = Field(validation_alias="ASSETS_S3_API_SECRET_ACCESS_KEY", min_length=1)
    endpoint_url: _Endpoint | None = Field(default=None, validation_alias="ASSETS_S3_ENDPOINT_URL")
    """An S3 server other than AWS's, addressed by path."""


class WorkerStorage(PublicDelivery):
    """What the worker reads and writes the private store with (§7)."""

    title: ClassVar[str] = "worker storage"

    region: _Name = Field(validation_alias="ASSETS_S3_REGION")
    bucket: _Bucket = Field(validation_alias="ASSETS_S3_BUCKET")
    access_key_id: _Name = Field(validation_alias="ASSETS_S3_WORKER_ACCESS_KEY_ID")
    secret_access_key: SecretStr = Field(validation_alias="ASSETS_S3_WORKER_SECRET_ACCESS_KEY", min_length=1)
    endpoint_url: _Endpoint | None = Field(default=None, validation_alias="ASSETS_S3_ENDPOINT_URL")
    """An S3 server other than AWS's, addressed by path."""
    missing_answers_403: bool = Field(default=False, validation_alias="ASSETS_S3_MISSING_ANSWERS_403")
    """Whether this bucket answers 403 for a missing key below `in/`; `ninaku storage check` prints which it does."""


class PublicStore(SettingsGroup):
    """The R2 bucket of public renditions (§7). Without it they go to the `a/` prefix of the S3 bucket (plan B)."""

    title: ClassVar[str] = "R2 public store"

    account_id: _AccountId = Field(validation_alias="ASSETS_R2_ACCOUNT_ID")
    bucket: _Bucket = Field(validation_alias="ASSETS_R2_PUBLIC_BUCKET")
    access_key_id: _Name = Field(validation_alias="ASSETS_R2_ACCESS_KEY_ID")
    secret_access_key: SecretStr = Field(validation_alias="ASSETS_R2_SECRET_ACCESS_KEY", min_length=1)
    endpoint_url: _Endpoint | None = Field(default=None, validation_alias="ASSETS_R2_ENDPOINT_URL")
    """A stand-in for `https://<account>.r2.cloudflarestorage.com`."""


class CloudflarePurge(SettingsGroup):
    """The CDN in front of R2, purged by URL (§16). The token may purge the cache of this zone and nothing else."""

    title: ClassVar[str] = "Cloudflare purge"

    zone_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]{1,64}$")] = Field(
        validation_alias="ASSETS_CDN_ZONE_ID"
    )
    purge_token: SecretStr = Field(validation_alias="ASSETS_CDN_PURGE_TOKEN", min_length=1)
    api_url: _ApiUrl = Field(default="https://api.cloudflare.com/client/v4", validation_alias="ASSETS_CDN_API_URL")


class CloudFrontPurge(SettingsGroup):
    """The CDN in front of the S3 bucket's `a/` prefix (plan B), with a key that may only create invalidations."""

    title: ClassVar[str] = "CloudFront purge"

    distribution_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]{1,64}$")] = Field(
        validation_alias="ASSETS_CDN_DISTRIBUTION_ID"
    )
    access_key_id: _Name = Field(validation_alias="ASSETS_CDN_ACCESS_KEY_ID")
    secret_access_key: SecretStr = Field(validation_alias="ASSETS_CDN_SECRET_ACCESS_KEY", min_length=1)
    endpoint_url: _Endpoint | None = Field(default=None, validation_alias="ASSETS_CDN_ENDPOINT_URL")
    """A server other than AWS's that speaks the same API."""


class NoCdn(SettingsGroup):
    """The statement that no cache stands in front of the public store, so that a purge has none to empty."""

    title: ClassVar[str] = "no CDN"

    cdn: Literal["none"] = Field(validation_alias="ASSETS_CDN")


class StorageOperator(SettingsGroup):
    """The identity of `ninaku storage apply`, which configures buckets and which no service carries."""

    title: ClassVar[str] = "storage operator"

    region: _Name = Field(validation_alias="ASSETS_S3_REGION")
    bucket: _Bucket = Field(validation_alias="ASSETS_S3_BUCKET")
    access_key_id: _Name = Field(validation_alias="ASSETS_S3_OPERATOR_ACCESS_KEY_ID")
    secret_access_key: SecretStr = Field(validation_alias="ASSETS_S3_OPERATOR_SECRET_ACCESS_KEY", min_length=1)
    endpoint_url: _Endpoint | None = Field(default=None, validation_alias="ASSETS_S3_ENDPOINT_URL")


class PublicStoreOperator(SettingsGroup):
    """The identity that `ninaku storage apply` configures the R2 bucket with."""

    title: ClassVar[str] = "R2 operator"

    account_id: _AccountId = Field(validation_alias="ASSETS_R2_ACCOUNT_ID")
    bucket: _Bucket = Field(validation_alias="ASSETS_R2_PUBLIC_BUCKET")
    access_key_id: _Name = Field(validation_alias="ASSETS_R2_OPERATOR_ACCESS_KEY_ID")
    secret_access_key: SecretStr = Field(validation_alias="ASSETS_R2_OPERATOR_SECRET_ACCESS_KEY", min_length=1)
    endpoint_url: _Endpoint | None = Field(default=None, validation_alias="ASSETS_R2_ENDPOINT_URL")


class StorageContract(SettingsGroup):
    """Where `ninaku storage check` may leave and remove its objects."""

    title: ClassVar[str] = "storage contract"

    key_prefix: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{0,40}$")] = Field(
        default="", validation_alias="ASSETS_STORAGE_CONTRACT_KEY_PREFIX"
    )
    """Marks the check's own keys below `in/`, `m/` and `a/`; required against any server that is not local."""


class DataPolicy(SettingsGroup):
    """The personal-data switch: private and sensitive files stay refused until it is `true`."""

    title: ClassVar[str] = "data policy"

    published: bool = Field(default=False, validation_alias="ASSETS_DATA_POLICY_PUBLISHED")


class ImageLoop(SettingsGroup):
    """The pace of the image worker (§11)."""

    title: ClassVar[str] = "image loop"

    idle_poll_ms: int = Field(default=2_000, ge=500, le=60_000, validation_alias="ASSETS_IDLE_POLL_MS")
    lease_seconds: int = Field(default=120, ge=30, le=900, validation_alias="ASSETS_IMAGE_LEASE_SECONDS")


class ServiceTokenVerification(SettingsGroup):
    """The services whose tokens are believed."""

    title: ClassVar[str] = "service token verification"

    public_keys: Annotated[dict[str, dict[str, str]], NoDecode] = Field(
        validation_alias="NINAKU_SERVICE_TOKEN_PUBLIC_KEYS", min_length=1
    )
    """Key id → {"service": its name, "key": Ed25519 public key as PEM or base64 of its 32 bytes}."""

    @field_validator("public_keys", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise ValueError("must be JSON") from error
        return value

    @field_validator("public_keys")
    @classmethod
    def _names_service_and_key(cls, value: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        if not all(set(entry) == {"service", "key"} and all(entry.values()) for entry in value.values()):
            raise ValueError('each key id must have exactly "service" and "key"')
        return value


class ServiceTokenIssuing(SettingsGroup):
    """The key a calling service signs its tokens with."""

    title: ClassVar[str] = "service token issuing"

    private_key: SecretStr = Field(validation_alias="NINAKU_SERVICE_TOKEN_PRIVATE_KEY", min_length=1)
    """Ed25519 private key, PEM."""
    key_id: _Name = Field(validation_alias="NINAKU_SERVICE_TOKEN_KEY_ID")


class Upstreams(SettingsGroup):
    """The services the gateway calls; each is host:port."""

    title: ClassVar[str] = "upstream services"

    admission: _Address = Field(validation_alias="NINAKU_ADMISSION_ADDRESS")
    library: _Address = Field(validation_alias="NINAKU_LIBRARY_ADDRESS")
    delivery: _Address = Field(validation_alias="NINAKU_DELIVERY_ADDRESS")


class CrossOrigin(SettingsGroup):
    """The browser origins that may call the gateway."""

    title: ClassVar[str] = "cross-origin"

    origins: Annotated[tuple[_Origin, ...], NoDecode] = Field(default=(), validation_alias="NINAKU_CORS_ORIGINS")
    """Separated by commas; none by default."""

    @field_validator("origins", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(origin.strip() for origin in value.split(",") if origin.strip())
        return value
