"""The addresses of public renditions."""

import hashlib
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from libs.assets.object_keys import public_rendition_key
from libs.assets.rendition_profile import PROFILE_1, RENDITIONS


@dataclass(frozen=True, slots=True)
class PublicUrls:
    """Builds URLs under one public base.

    `base_url` is an https origin without a path (`https://media.example.com`). A loopback host may be plain http and
    carry a bucket path, which is how the local S3 server is reached. Raises ValueError for anything else.
    """

    base_url: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", _validated(self.base_url))

    def rendition(self, delivery_token: str, profile: int, name: str) -> str:
        """The URL of one public rendition; it never changes and may be cached for ever."""
        return f"{self.base_url}/{public_rendition_key(delivery_token, profile, name)}"

    def tile_template(self) -> str:
        """The URL of any image's tile, with `{imageRef}` where its delivery token goes."""
        return f"{self.base_url}/a/{{imageRef}}/p{PROFILE_1}/tile.webp"

    def fingerprint(self) -> str:
        """Eight hex digits that change when the base URL or the list of profiles does (§17)."""
        profiles = ",".join(str(number) for number in sorted(RENDITIONS))
        return hashlib.sha256(f"{self.base_url}|{profiles}".encode()).hexdigest()[:8]


def _validated(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        raise ValueError("the public base URL is not a URL") from error
    if not base_url.isascii() or any(character.isspace() for character in base_url):
        raise ValueError("the public base URL is ASCII without spaces")
    if not parts.hostname or parts.query or parts.fragment or "?" in base_url or "#" in base_url or "@" in parts.netloc:
        raise ValueError("the public base URL has a host and neither credentials, query nor fragment")
    if port == 0:
        raise ValueError("the public base URL has no such port")
    if _is_loopback(parts.hostname):
        if parts.scheme not in ("http", "https"):
            raise ValueError("the public base URL is http or https")
        return base_url.rstrip("/")
    if parts.scheme != "https":
        raise ValueError("the public base URL is https unless its host is loopback")
    if parts.path not in ("", "/"):
        raise ValueError("the public base URL is an origin without a path unless its host is loopback")
    return base_url.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
