"""The three HTTP routes of the main job, and the POST to object storage, as one small client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast
from uuid import UUID

import httpx

from services.cli.uploading.files import SendableFile

_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_POST_TIMEOUT = httpx.Timeout(300.0, connect=10.0)


@dataclass(frozen=True)
class GatewayAccess:
    """Where the gateway is and who asks: `base_url` without a trailing slash."""

    base_url: str
    session: str
    organization_id: str


@dataclass(frozen=True)
class Upload:
    """The form to post a file with."""

    id: str
    url: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Intent:
    """What `request_upload` answered. `upload` is None on a replay whose form is spent."""

    asset: Mapping[str, Any]
    upload: Upload | None
    replayed: bool


class GatewayRefused(Exception):
    """The gateway said no. `retry_after` is in seconds, where it named one."""

    def __init__(self, status: int, code: str, message: str, remedy: str, retry_after: float | None) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.remedy = remedy
        self.retry_after = retry_after
        super().__init__(f"{message} {remedy}".strip() + f" [{code}]")


class StorageRefused(Exception):
    """Object storage did not take the file."""


class Unreachable(Exception):
    """Nobody answered; the same request may be sent again."""


class GatewayClient:
    """Speaks to one gateway as one member. Use as an async context manager."""

    def __init__(self, access: GatewayAccess) -> None:
        self._access = access
        headers = {"Authorization": f"Bearer {access.session}", "X-Organization-Id": access.organization_id}
        self._http = httpx.AsyncClient(base_url=access.base_url, headers=headers, timeout=_TIMEOUT, trust_env=False)
        # Object storage gets none of those headers: the form is all it needs to know.
        self._storage = httpx.AsyncClient(timeout=_POST_TIMEOUT, trust_env=_is_remote(access.base_url))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()
        await self._storage.aclose()

    async def request_upload(self, file: SendableFile, idempotency_key: UUID) -> Intent:
        """Asks for a form (§9.1). Raises GatewayRefused or Unreachable; the same key may be sent again."""
        body = {
            "mediaType": str(file.media_type),
            "byteSize": file.size,
            "accessClass": "public",
            "displayName": _shown(file.path.stem),
            "originalFilename": _shown(file.path.name),
        }
        body = {name: value for name, value in body.items() if value}
        response = await self._send(
            "POST", "/api/v1/assets/uploads", json=body, headers={"Idempotency-Key": str(idempotency_key)}
        )
        data = response.json()["data"]
        form = data["upload"]
        return Intent(
            asset=data["asset"],
            upload=None if form is None else Upload(form["id"], form["url"], form["fields"]),
            replayed=response.headers.get("Idempotent-Replayed") == "true",
        )

    async def post_file(self, upload: Upload, file: SendableFile, progress: Callable[[int], None]) -> None:
        """Posts the bytes under the form, the file last. `progress` hears the bytes sent so far."""
        with file.path.open("rb") as source:
            counted = _CountingFile(source, progress)
            try:
                response = await self._storage.post(
                    upload.url,
                    data=dict(upload.fields),
                    files={"file": ("file", cast("Any", counted), str(file.media_type))},
                )
            except httpx.TransportError as error:
                raise Unreachable(f"Object storage did not answer at {httpx.URL(upload.url).host}.") from error
        if response.status_code >= 500:  # a server's own trouble: the same form may be posted again
            raise Unreachable(f"Object storage answered {response.status_code}.")
        if response.status_code >= 300:
            reason = _between(response.text, "<Code>", "</Code>")
            raise StorageRefused(f"Object storage refused the file: {reason or response.status_code}.")

    async def complete(self, upload_id: str) -> Mapping[str, Any]:
        """Says that the file was posted (§10) and answers the asset."""
        response = await self._send("POST", f"/api/v1/assets/uploads/{upload_id}/completion")
        return cast("Mapping[str, Any]", response.json()["data"])

    async def asset(self, asset_id: str) -> Mapping[str, Any]:
        """The asset as it is now (§9.2)."""
        response = await self._send("GET", f"/api/v1/assets/{asset_id}")
        return cast("Mapping[str, Any]", response.json()["data"])

    async def _send(
        self, method: str, path: str, *, json: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        try:
            response = await self._http.request(method, path, json=json, headers=dict(headers or {}))
        except httpx.TransportError as error:
            raise Unreachable(f"Nobody answers at {self._access.base_url}.") from error
        if response.is_success:
            return response
        raise _refusal(response)


class _CountingFile:
    """A file that tells how far it was read; httpx asks it for its length by seeking."""

    def __init__(self, source: Any, progress: Callable[[int], None]) -> None:
        self._source = source
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        chunk = cast("bytes", self._source.read(size))
        self._progress(self._source.tell())
        return chunk

    def seek(self, offset: int, whence: int = 0) -> int:
        return cast("int", self._source.seek(offset, whence))

    def tell(self) -> int:
        return cast("int", self._source.tell())

    def fileno(self) -> int:
        return cast("int", self._source.fileno())


def _refusal(response: httpx.Response) -> GatewayRefused:
    try:
        error = response.json()["error"]
        code, message = str(error["code"]), str(error["message"])
        remedy = str((error.get("meta") or {}).get("remedy", ""))
    except (ValueError, KeyError, TypeError):
        code, message, remedy = "unknown", f"The gateway answered {response.status_code}.", ""
    retry_after = response.headers.get("Retry-After", "")
    return GatewayRefused(
        response.status_code, code, message, remedy, float(retry_after) if retry_after.isdigit() else None
    )


def _shown(name: str) -> str:
    """A name the API accepts: no control characters, at most 255 characters, the ends trimmed."""
    return "".join(character for character in name if character.isprintable()).strip()[:255]


def _is_remote(base_url: str) -> bool:
    # A proxy of the environment is for the way out, never for the loopback.
    return httpx.URL(base_url).host not in {"127.0.0.1", "localhost", "::1"}


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]
