"""`ninaku storage apply`: the buckets as deploy/storage describes them."""

import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from libs.settings.processes import StorageApplySettings
from libs.storage.clients import StorageAccount, open_client, r2_account, s3_account

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

DOCUMENTS: Final = Path(__file__).resolve().parents[2] / "deploy" / "storage"

_BROWSER_ORIGINS: Final = "{browser-origins}"
_NOTHING_SET_CODES: Final = frozenset(
    {"NoSuchCORSConfiguration", "NoSuchLifecycleConfiguration", "NoSuchPublicAccessBlockConfiguration"}
)

Out = Callable[[str], None]
Document = Mapping[str, Any]


@dataclass(frozen=True)
class BucketDesign:
    """What one bucket should be, in the shapes of the S3 API. `public_access_block` None leaves that to the store."""

    cors: tuple[Document, ...]
    lifecycle: tuple[Document, ...]
    public_access_block: Document | None


def read_design(document: Path, browser_origins: Sequence[str]) -> BucketDesign:
    """The design in a document, its browser origins filled in; a rule for browsers is left out when there are none."""
    content = json.loads(document.read_text(encoding="utf-8"))
    rules = []
    for rule in content["cors"]:
        origins = [
            origin
            for stated in rule["AllowedOrigins"]
            for origin in (browser_origins if stated == _BROWSER_ORIGINS else (stated,))
        ]
        if origins:
            rules.append({**rule, "AllowedOrigins": origins})
    return BucketDesign(tuple(rules), tuple(content["lifecycle"]), content["publicAccessBlock"])


async def apply(settings: StorageApplySettings, check_only: bool, out: Out) -> bool:
    """Makes the configured buckets what deploy/storage says, or with `check_only` only compares.

    Prints one line per aspect of each bucket through `out`; False when something is not as it should be.
    """
    buckets = [(s3_account(settings.operator), "private-bucket.json")]
    if settings.public_operator is None:
        out("R2 public bucket: not configured; public renditions belong below a/ of the S3 bucket")
    else:
        buckets.append((r2_account(settings.public_operator), "public-bucket.json"))
    right = True
    for account, document in buckets:
        design = read_design(DOCUMENTS / document, settings.cross_origin.origins)
        right = await apply_bucket(account, design, check_only, out) and right
    return right


async def apply_bucket(account: StorageAccount, design: BucketDesign, check_only: bool, out: Out) -> bool:
    """Makes one bucket what `design` says, or only compares; True when it is (or now is) as designed."""
    async with open_client(account) as client:
        bucket = _Bucket(client, account, design, check_only, out)
        if not await bucket.step("bucket", bucket.read_existence, {"exists": True}, bucket.create):
            return False
        return all(
            [
                await bucket.step("CORS", bucket.read_cors, bucket.wanted_cors(), bucket.write_cors),
                await bucket.step(
                    "lifecycle", bucket.read_lifecycle, bucket.wanted_lifecycle(), bucket.write_lifecycle
                ),
                design.public_access_block is None
                or await bucket.step(
                    "public access block",
                    bucket.read_public_access_block,
                    design.public_access_block,
                    bucket.write_public_access_block,
                ),
            ]
        )


def is_local(endpoint_url: str | None) -> bool:
    """Whether a server is on this machine: only there may something be missing or be tried freely."""
    host = urlsplit(endpoint_url or "").hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Bucket:
    """The aspects of one bucket: how each is read and written."""

    def __init__(
        self, client: "S3Client", account: StorageAccount, design: BucketDesign, check_only: bool, out: Out
    ) -> None:
        self._client: Any = client  # the documents are in the API's own shapes, which its types do not take as mappings
        self._account = account
        self._design = design
        self._check_only = check_only
        self._out = out

    async def step(
        self,
        aspect: str,
        read: Callable[[], Awaitable[object]],
        wanted: object,
        write: Callable[[], Awaitable[object]],
    ) -> bool:
        """One aspect: read, compare, write if allowed, and read again, because an answer of 200 is not yet a fact."""
        try:
            found = await read()
            if found == wanted:
                return self._say(aspect, "ok", True)
            if self._check_only:
                return self._say(aspect, f"differs: it is {_brief(found)} and should be {_brief(wanted)}", False)
            await write()
            if await read() == wanted:
                return self._say(aspect, "changed", True)
            return self._say(aspect, "was written, and still differs", False)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            if code == "NotImplemented" and is_local(self._account.endpoint_url):
                return self._say(aspect, "this local server has no such thing", True)
            return self._say(aspect, f"refused: {code}", False)
        except BotoCoreError as error:
            return self._say(aspect, f"not reached: {type(error).__name__}", False)

    async def read_existence(self) -> object:
        try:
            await self._client.head_bucket(Bucket=self._account.bucket)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
                return {"exists": False}
            raise
        return {"exists": True}

    async def create(self) -> None:
        if self._account.region in ("us-east-1", "auto"):
            await self._client.create_bucket(Bucket=self._account.bucket)
        else:
            await self._client.create_bucket(
                Bucket=self._account.bucket,
                CreateBucketConfiguration={"LocationConstraint": self._account.region},
            )

    def wanted_cors(self) -> object:
        return _comparable(self._design.cors)

    async def read_cors(self) -> object:
        found = await self._or_nothing(self._client.get_bucket_cors(Bucket=self._account.bucket))
        return _comparable(found.get("CORSRules", ()))

    async def write_cors(self) -> None:
        if self._design.cors:
            await self._client.put_bucket_cors(
                Bucket=self._account.bucket, CORSConfiguration={"CORSRules": list(self._design.cors)}
            )
        else:
            await self._client.delete_bucket_cors(Bucket=self._account.bucket)

    def wanted_lifecycle(self) -> object:
        return _comparable(self._design.lifecycle)

    async def read_lifecycle(self) -> object:
        found = await self._or_nothing(self._client.get_bucket_lifecycle_configuration(Bucket=self._account.bucket))
        rules = found.get("Rules", ())
        if not self._design.lifecycle:
            # A store's own rule about unfinished multipart uploads, which R2 starts with, removes nothing of ours.
            rules = [rule for rule in rules if "Expiration" in rule or "Transitions" in rule]
        return _comparable(rules)

    async def write_lifecycle(self) -> None:
        if self._design.lifecycle:
            await self._client.put_bucket_lifecycle_configuration(
                Bucket=self._account.bucket, LifecycleConfiguration={"Rules": list(self._design.lifecycle)}
            )
        else:
            await self._client.delete_bucket_lifecycle(Bucket=self._account.bucket)

    async def read_public_access_block(self) -> object:
        found = await self._or_nothing(self._client.get_public_access_block(Bucket=self._account.bucket))
        return found.get("PublicAccessBlockConfiguration", {})

    async def write_public_access_block(self) -> None:
        await self._client.put_public_access_block(
            Bucket=self._account.bucket, PublicAccessBlockConfiguration=dict(self._design.public_access_block or {})
        )

    def _say(self, aspect: str, result: str, right: bool) -> bool:
        self._out(f"{'ok     ' if right else 'FAILED '} {self._account.bucket}: {aspect}: {result}")
        return right

    @staticmethod
    async def _or_nothing(call: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        try:
            return await call
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _NOTHING_SET_CODES:
                return {}
            raise


def _comparable(rules: Sequence[Document]) -> list[str]:
    """Rules in one order, lists inside them too: neither means anything to the store."""
    return sorted(
        json.dumps(
            {name: sorted(value) if isinstance(value, list) else value for name, value in rule.items()}, sort_keys=True
        )
        for rule in rules
    )


def _brief(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(str(item) for item in value) + "]"
    return json.dumps(value, sort_keys=True)
