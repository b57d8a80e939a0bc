"""`ninaku storage check`: what the platform takes for granted about its object storage, proven on the real one (§8).

The bound on an upload is kept by the storage alone, since no service of ours sees the bytes. So every expectation is
an answer of the server that the environment names, and one that differs fails the check.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

import httpx

from libs.assets.media_types import MediaType
from libs.assets.rendition_profile import PROFILE_1
from libs.assets.tokens import generate_delivery_token
from libs.settings.processes import StorageCheckSettings
from libs.storage.clients import Provider, s3_account, worker_layout
from libs.storage.errors import StorageError, StorageRefused
from libs.storage.object_store import ObjectStore, open_object_store
from libs.storage.upload_policy import (
    LONGEST_POLICY_SECONDS,
    UploadPolicy,
    UploadPolicySigner,
    open_upload_policy_signer,
)
from services.cli.storage_apply import Out, is_local

MAX_BYTES: Final = 64 * 1024
RENDITION_CACHE_CONTROL: Final = "public, max-age=31536000, immutable"
_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Answer:
    """What a server said to a form: its status, and S3's own code when there is one."""

    status: int
    code: str | None

    def __str__(self) -> str:
        return str(self.status) if self.code is None else f"{self.status} {self.code}"


async def run_contract(settings: StorageCheckSettings, out: Out) -> bool:
    """Tries every expectation and prints a line for each through `out`; False when one does not hold.

    Leaves nothing behind. Refuses to run against a server elsewhere without ASSETS_STORAGE_CONTRACT_KEY_PREFIX.
    """
    endpoints = [settings.storage.endpoint_url]
    if settings.public_store is not None:
        endpoints.append(settings.public_store.endpoint_url)
    if not settings.contract.key_prefix and not all(is_local(endpoint) for endpoint in endpoints):
        out("FAILED  against a server elsewhere, set ASSETS_STORAGE_CONTRACT_KEY_PREFIX (for example contract-)")
        return False
    async with (
        open_upload_policy_signer(s3_account(settings.upload_signing)) as signer,
        open_object_store(worker_layout(settings.storage, settings.public_store)) as store,
        httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as http,
    ):
        contract = _Contract(signer, store, http, settings, out)
        try:
            return await contract.run()
        finally:
            await contract.clean_up()


class _Contract:
    def __init__(
        self,
        signer: UploadPolicySigner,
        store: ObjectStore,
        http: httpx.AsyncClient,
        settings: StorageCheckSettings,
        out: Out,
    ) -> None:
        self._signer = signer
        self._store = store
        self._http = http
        self._settings = settings
        self._out = out
        self._left: list[tuple[Provider, str]] = []

    async def run(self) -> bool:
        """Every expectation, each tried whatever became of the ones before."""
        results = [
            await self._expect_form("a form of exactly the declared size", (204, None), size=MAX_BYTES),
            await self._expect_form(
                "a form one byte over the declared size", (400, "EntityTooLarge"), size=MAX_BYTES + 1
            ),
            await self._expect_form("a form without a byte", (400, "EntityTooSmall"), size=0),
            await self._expect_form(
                "a form with another Content-Type", (403, None), change={"Content-Type": MediaType.PNG.value}
            ),
            await self._expect_form(
                "a form with the same policy for another key", (403, None), change={"key": self._key("in")}
            ),
            await self._try("the size and type that were stored", self._stored_as_declared),
            await self._try("HEAD of a missing key below in/ with the worker key", self._missing_answer),
            await self._try(
                "put, get and delete below m/ of the private store",
                lambda: self._round_trip(Provider.S3_PRIVATE, self._key("m") + "/original.webp", None),
            ),
        ]
        rendition = f"{self._key('a')}/p{PROFILE_1}/tile.webp"
        if self._settings.public_store is None:
            self._out("        put, get and delete on the R2 public bucket: SKIPPED (no R2 credentials)")
            place = "below a/ of the S3 bucket"
        else:
            place = "below a/ of the R2 public bucket"
        results.append(
            await self._try(
                f"put, get and delete {place}",
                lambda: self._round_trip(self._store.public_provider, rendition, RENDITION_CACHE_CONTROL),
            )
        )
        return all(results)

    async def clean_up(self) -> None:
        """Removes whatever an expectation may have left, also one that failed."""
        for provider, key in self._left:
            try:
                await self._store.remove(provider, key)
            except StorageError as error:
                self._out(f"LEFT    {key} on {provider}: {error.code}")

    async def _expect_form(
        self,
        expectation: str,
        wanted: tuple[int, str | None],
        size: int = MAX_BYTES,
        change: Mapping[str, str] | None = None,
    ) -> bool:
        async def tried() -> tuple[bool, str]:
            key = self._key("in")
            policy = await self._policy(key)
            answer = await self._post(policy, b"\xff" * size, change or {})
            posted_to = (change or {}).get("key", key)
            stored = await self._size_or_none(posted_to)
            status, code = wanted
            right = answer.status == status and code in (None, answer.code)
            right = right and stored == (size if status == 204 else None)
            outcome = "nothing stored" if stored is None else f"{stored} bytes stored"
            return right, f"{answer}, {outcome} (expected {status}{'' if code is None else f' {code}'})"

        return await self._try(expectation, tried)

    async def _stored_as_declared(self) -> tuple[bool, str]:
        key = self._key("in")
        content = bytes(range(256)) * (MAX_BYTES // 256)
        answer = await self._post(await self._policy(key), content, {})
        read = await self._store.read_at_most(Provider.S3_PRIVATE, key, MAX_BYTES)
        capped = await self._store.read_at_most(Provider.S3_PRIVATE, key, 10)
        right = answer.status == 204 and read == content and capped == content[:11]
        return right, f"{answer}, {0 if read is None else len(read)} bytes read back (expected {MAX_BYTES})"

    async def _missing_answer(self) -> tuple[bool, str]:
        key = self._key("in")
        try:
            found = await self._store.head(Provider.S3_PRIVATE, key)
        except StorageRefused as error:
            if error.code not in ("403", "AccessDenied", "Forbidden"):
                return False, error.code
            configured = self._settings.storage.missing_answers_403
            return configured, "403" if configured else "403: set ASSETS_S3_MISSING_ANSWERS_403=true for the worker"
        return found is None, "404" if found is None else "found"

    async def _round_trip(self, provider: Provider, key: str, cache_control: str | None) -> tuple[bool, str]:
        self._left.append((provider, key))
        content = b"RIFF\x04\x00\x00\x00WEBP" * 100
        await self._store.put(provider, key, content, MediaType.WEBP, cache_control)
        read = await self._store.read_at_most(provider, key, len(content))
        await self._store.remove(provider, key)
        gone = await self._store.head(provider, key)
        await self._store.remove(provider, key)
        right = read == content and gone is None
        return right, "as written, then gone" if right else "not what was written, or not gone"

    async def _try(self, expectation: str, attempt: Callable[[], Awaitable[tuple[bool, str]]]) -> bool:
        try:
            right, observed = await attempt()
        except StorageError as error:
            right, observed = False, f"{error.operation} answered {error.code}"
        except httpx.HTTPError as error:
            right, observed = False, type(error).__name__
        self._out(f"{'ok     ' if right else 'FAILED '} {expectation}: {observed}")
        return right

    async def _policy(self, key: str) -> UploadPolicy:
        self._left.append((Provider.S3_PRIVATE, key))
        return await self._signer.sign(key, MediaType.JPEG, MAX_BYTES, LONGEST_POLICY_SECONDS)

    async def _post(self, policy: UploadPolicy, content: bytes, change: Mapping[str, str]) -> Answer:
        fields = {**policy.fields, **change}
        answer = await self._http.post(
            policy.url, data=fields, files={"file": ("photo.jpg", content, fields["Content-Type"])}
        )
        return Answer(answer.status_code, _error_code(answer.text))

    async def _size_or_none(self, key: str) -> int | None:
        self._left.append((Provider.S3_PRIVATE, key))
        try:
            return await self._store.head(Provider.S3_PRIVATE, key)
        except StorageRefused:
            return None  # a bucket that answers 403 for what is missing has an expectation of its own

    def _key(self, root: str) -> str:
        return f"{root}/{self._settings.contract.key_prefix}{generate_delivery_token()}"


def _error_code(body: str) -> str | None:
    try:
        return ET.fromstring(body).findtext("Code")  # noqa: S314 - the storage's own answer, and expat is bounded
    except ET.ParseError:
        return None
