"""Short-lived signed tokens between services (DESIGN D3): Ed25519 signatures, one audience, at most five minutes.

Each service holds its own private key; a called service holds the public keys of those it knows. The key's name decides
which service the caller is, never a claim that the caller writes itself.
"""

import base64
import binascii
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from libs.errors.refusal import Refusal

ALGORITHM = "EdDSA"
LONGEST_LIFETIME_SECONDS = 300
CLOCK_LEEWAY_SECONDS = 30


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """The public key of a known service."""

    service: str
    """Name of the service that signs with it."""
    public_key: Ed25519PublicKey
    """Verifies its tokens."""


@dataclass(frozen=True, slots=True)
class ActingFor:
    """For whom a service calls: a membership of an organization."""

    organization_id: uuid.UUID
    """The acting organization."""
    membership_id: uuid.UUID
    """The acting membership."""


@dataclass(frozen=True, slots=True)
class ServiceClaims:
    """What a valid token proves."""

    service: str
    """The calling service."""
    acting_for: ActingFor | None
    """None for a token that names no organization: the service calls for itself."""


class ServiceTokenIssuer:
    """Signs the tokens that this service calls others with.

    Args:
        key_id: Name of the key, as the called services know it.
        private_key: This service's own key.
        lifetime_seconds: Validity of a token, 1 to 300.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        key_id: str,
        private_key: Ed25519PrivateKey,
        *,
        lifetime_seconds: int = 60,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep the key; refuse a lifetime that every verifier would refuse."""
        if not 1 <= lifetime_seconds <= LONGEST_LIFETIME_SECONDS:
            raise ValueError(f"a service token lives 1 to {LONGEST_LIFETIME_SECONDS} seconds")
        self._key_id = key_id
        self._private_key = private_key
        self._lifetime = lifetime_seconds
        self._clock = clock

    def issue(self, audience: str, organization_id: uuid.UUID, membership_id: uuid.UUID) -> str:
        """Return a token for one called service, acting for one membership of one organization."""
        return self._signed(audience, {"org": str(organization_id), "mem": str(membership_id)})

    def issue_for_itself(self, audience: str) -> str:
        """Return a token for one called service that names no organization."""
        return self._signed(audience, {})

    def _signed(self, audience: str, acting_for: Mapping[str, str]) -> str:
        now = int(self._clock())
        claims = {"aud": audience, "iat": now, "exp": now + self._lifetime, **acting_for}
        return jwt.encode(claims, self._private_key, algorithm=ALGORITHM, headers={"kid": self._key_id})


class ServiceTokenVerifier:
    """Checks the tokens that other services call this one with.

    Args:
        audience: This service's name.
        keys: Known services by key id.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, audience: str, keys: Mapping[str, ServiceKey], *, clock: Callable[[], float] = time.time
    ) -> None:
        """Keep a copy of the keys."""
        self._audience = audience
        self._keys = dict(keys)
        self._clock = clock

    def verify(self, token: str) -> ServiceClaims:
        """Return what the token proves.

        Raises:
            Refusal: ``identity.unauthenticated`` for anything but a live token of a known key for this audience. Which
                of these failed is not told.
        """
        try:
            key = self._keys[jwt.get_unverified_header(token)["kid"]]
            claims = jwt.decode(
                token,
                key.public_key,
                algorithms=[ALGORITHM],
                audience=self._audience,
                options={
                    "require": ["aud", "iat", "exp"],
                    "verify_exp": False,
                    "verify_iat": False,
                    "strict_aud": True,
                },
            )
            live = self._is_live(int(claims["iat"]), int(claims["exp"]))
            acting_for = None
            if not claims.keys().isdisjoint(("org", "mem")):  # both or neither
                acting_for = ActingFor(uuid.UUID(claims["org"]), uuid.UUID(claims["mem"]))
        except (jwt.PyJWTError, KeyError, ValueError, TypeError, AttributeError, OverflowError):
            raise Refusal("identity.unauthenticated") from None
        if not live:
            raise Refusal("identity.unauthenticated")
        return ServiceClaims(key.service, acting_for)

    def _is_live(self, issued: int, expires: int) -> bool:
        now = self._clock()
        begun_and_not_over = issued - CLOCK_LEEWAY_SECONDS <= now < expires + CLOCK_LEEWAY_SECONDS
        return begun_and_not_over and 0 < expires - issued <= LONGEST_LIFETIME_SECONDS


def service_keys(configured: Mapping[str, Mapping[str, str]]) -> dict[str, ServiceKey]:
    """Return the known services by key id, from ``{kid: {"service": name, "key": PEM or base64 of the 32 bytes}}``.

    Raises:
        ValueError: A key is no Ed25519 public key; the message names its id and nothing of it.
    """
    return {
        key_id: ServiceKey(entry["service"], _public_key(key_id, entry["key"])) for key_id, entry in configured.items()
    }


def _public_key(key_id: str, text: str) -> Ed25519PublicKey:
    try:
        if text.lstrip().startswith("-----BEGIN"):
            key = serialization.load_pem_public_key(text.encode())
            if not isinstance(key, Ed25519PublicKey):
                raise ValueError("not Ed25519")
            return key
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error, TypeError):
        raise ValueError(f"the service token key {key_id!r} is not an Ed25519 public key") from None
