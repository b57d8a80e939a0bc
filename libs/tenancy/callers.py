"""Reads the caller from a call's metadata (DESIGN D3).

Nothing here decides whether a session is good: the database does, in the same transaction as the work.
"""

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from libs.errors.refusal import Refusal
from libs.rpc.identifiers import parse_uuid
from libs.tenancy.service_tokens import ServiceTokenVerifier

AUTHORIZATION = "authorization"
ORGANIZATION = "x-organization-id"

_BEARER = "bearer "
_LONGEST_SESSION_TOKEN = 256


@dataclass(frozen=True, slots=True)
class UserCaller:
    """A person acting for an organization, not yet checked against the database."""

    token_hash: bytes
    """SHA-256 of the session token, 32 bytes; the token itself is kept nowhere."""
    organization_id: uuid.UUID
    """The organization the person says to act for."""


@dataclass(frozen=True, slots=True)
class ServiceCaller:
    """A service acting for a membership of an organization, its token verified."""

    service: str
    """The calling service's name, as registered with its key."""
    organization_id: uuid.UUID
    """The acting organization."""
    membership_id: uuid.UUID
    """The acting membership; the database checks that it is active."""


@dataclass(frozen=True, slots=True)
class OperatorCaller:
    """A service that looks after the installation and acts for no organization, its token verified."""

    service: str
    """The calling service's name, as registered with its key."""


def hash_session_token(token: str) -> bytes:
    """Return what the database stores of a session token: its SHA-256, 32 bytes."""
    return hashlib.sha256(token.encode()).digest()


def user_caller(metadata: Mapping[str, str | bytes]) -> UserCaller:
    """Return the person that the metadata names.

    Raises:
        Refusal: ``identity.unauthenticated`` without a well-formed bearer token, ``tenant.context_rejected`` without a
            well-formed organization id.
    """
    token = _bearer(metadata)
    if len(token) > _LONGEST_SESSION_TOKEN:
        raise Refusal("identity.unauthenticated")
    organization = metadata.get(ORGANIZATION, "")
    organization_id = parse_uuid(organization) if isinstance(organization, str) else None
    if organization_id is None:
        raise Refusal("tenant.context_rejected")
    return UserCaller(hash_session_token(token), organization_id)


def service_caller(metadata: Mapping[str, str | bytes], verifier: ServiceTokenVerifier) -> ServiceCaller:
    """Return the service that the metadata's token proves.

    Raises:
        Refusal: ``identity.unauthenticated`` without a valid token for this service that names whom it acts for.
    """
    claims = verifier.verify(_bearer(metadata))
    if claims.acting_for is None:
        raise Refusal("identity.unauthenticated")
    return ServiceCaller(claims.service, claims.acting_for.organization_id, claims.acting_for.membership_id)


def operator_caller(metadata: Mapping[str, str | bytes], verifier: ServiceTokenVerifier) -> OperatorCaller:
    """Return the service that calls for itself, for what belongs to all organizations.

    Raises:
        Refusal: ``identity.unauthenticated`` without a valid token for this service, or with one that acts for an
            organization: what was signed for one tenant opens nothing of the others.
    """
    claims = verifier.verify(_bearer(metadata))
    if claims.acting_for is not None:
        raise Refusal("identity.unauthenticated")
    return OperatorCaller(claims.service)


def _bearer(metadata: Mapping[str, str | bytes]) -> str:
    value = metadata.get(AUTHORIZATION, "")
    if not isinstance(value, str) or value[: len(_BEARER)].lower() != _BEARER:
        raise Refusal("identity.unauthenticated")
    token = value[len(_BEARER) :].strip()
    if not token or not token.isascii() or not token.isprintable():
        raise Refusal("identity.unauthenticated")
    return token
