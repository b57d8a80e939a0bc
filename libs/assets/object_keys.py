"""Where an object lies: every key is made of a token and fixed words, never of anything a person typed (§7)."""

from libs.assets.rendition_profile import RENDITIONS, variant_code
from libs.assets.tokens import is_delivery_token


def staging_key(staging_token: str) -> str:
    """The key an upload is posted to; the bucket forgets what is below `in/` after a day."""
    return f"in/{_checked(staging_token)}"


def master_key(delivery_token: str) -> str:
    """The key of the sanitized master, in the private store."""
    return f"m/{_checked(delivery_token)}/original.webp"


def provider_original_key(delivery_token: str) -> str:
    """The key of what an image model delivered, in the private store."""
    return f"m/{_checked(delivery_token)}/provider-original.png"


def public_rendition_key(delivery_token: str, profile: int, name: str) -> str:
    """The key of a rendition anyone may fetch, in the public store; also the path of its URL."""
    return _rendition_key("a", delivery_token, profile, name)


def private_rendition_key(delivery_token: str, profile: int, name: str) -> str:
    """The key of a rendition reached only through signed links, in the private store."""
    return _rendition_key("p", delivery_token, profile, name)


def private_keys(delivery_token: str, profile: int) -> tuple[str, ...]:
    """Every key that an asset can ever have in the private store, its staging object apart."""
    renditions = (private_rendition_key(delivery_token, profile, each.name) for each in RENDITIONS[profile])
    return (master_key(delivery_token), provider_original_key(delivery_token), *renditions)


def public_keys(delivery_token: str, profile: int) -> tuple[str, ...]:
    """Every key that an asset can ever have in the public store."""
    return tuple(public_rendition_key(delivery_token, profile, each.name) for each in RENDITIONS[profile])


def token_of(key: str) -> str | None:
    """The delivery token that a key below `m/`, `p/` or `a/` was built from; None for any other key."""
    root, _, rest = key.partition("/")
    token = rest.partition("/")[0]
    return token if root in ("m", "p", "a") and is_delivery_token(token) else None


def _rendition_key(root: str, delivery_token: str, profile: int, name: str) -> str:
    variant_code(profile, name)
    return f"{root}/{_checked(delivery_token)}/p{profile}/{name}.webp"


def _checked(token: str) -> str:
    if not is_delivery_token(token):
        raise ValueError("an object key is built from a 26 character base32 token")
    return token
