"""Callers read from metadata, and the tokens between services."""

import hashlib
import uuid

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from libs.errors.refusal import Refusal
from libs.tenancy.callers import operator_caller, service_caller, user_caller
from libs.tenancy.service_tokens import ServiceKey, ServiceTokenIssuer, ServiceTokenVerifier

ORGANIZATION = uuid.UUID("01929c3e-7d4e-7a51-9f00-5c2b3c1a9e10")
MEMBERSHIP = uuid.UUID("01929c3e-7d4e-7a51-9f00-5c2b3c1a9e11")
NOW = 1_790_000_000.0


def code_of(call: object, *args: object) -> str:
    with pytest.raises(Refusal) as refused:
        call(*args)  # type: ignore[operator]
    return refused.value.code


def test_a_person_is_the_hash_of_the_session_and_the_organization() -> None:
    caller = user_caller({"authorization": "Bearer s3ssion", "x-organization-id": str(ORGANIZATION)})
    assert caller.token_hash == hashlib.sha256(b"s3ssion").digest()
    assert caller.organization_id == ORGANIZATION
    assert "s3ssion" not in repr(caller)


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic abc", "Bearer a\x00b", "Bearer é", "Bearer " + "a" * 257, b"Bearer x"],
)
def test_a_malformed_session_is_unauthenticated(authorization: str | bytes) -> None:
    metadata = {"authorization": authorization, "x-organization-id": str(ORGANIZATION)}
    assert code_of(user_caller, metadata) == "identity.unauthenticated"


@pytest.mark.parametrize(
    "organization",
    ["", "1", "not-a-uuid", b"\x00", f"{{{ORGANIZATION}}}", f"urn:uuid:{ORGANIZATION}", ORGANIZATION.hex],
)
def test_a_malformed_organization_is_a_rejected_context(organization: str | bytes) -> None:
    metadata = {"authorization": "Bearer x", "x-organization-id": organization}
    assert code_of(user_caller, metadata) == "tenant.context_rejected"


class Keys:
    def __init__(self) -> None:
        self.catalog = Ed25519PrivateKey.generate()
        self.now = NOW
        self.issuer = ServiceTokenIssuer("catalog-1", self.catalog, clock=lambda: self.now)
        known = {"catalog-1": ServiceKey("catalog", self.catalog.public_key())}
        self.verifier = ServiceTokenVerifier("delivery", known, clock=lambda: self.now)

    def signed(self, *, key: Ed25519PrivateKey | None = None, kid: str = "catalog-1", **claims: object) -> str:
        body = {
            "aud": "delivery",
            "iat": int(NOW),
            "exp": int(NOW) + 60,
            "org": str(ORGANIZATION),
            "mem": str(MEMBERSHIP),
        }
        body = {name: value for name, value in (body | claims).items() if value is not None}
        return jwt.encode(body, key or self.catalog, algorithm="EdDSA", headers={"kid": kid})


def test_a_service_token_proves_its_service_organization_and_membership() -> None:
    keys = Keys()
    token = keys.issuer.issue("delivery", ORGANIZATION, MEMBERSHIP)
    caller = service_caller({"authorization": f"Bearer {token}"}, keys.verifier)
    assert (caller.service, caller.organization_id, caller.membership_id) == ("catalog", ORGANIZATION, MEMBERSHIP)


def test_a_token_is_refused_unless_every_part_of_it_holds() -> None:
    keys = Keys()
    assert keys.verifier.verify(keys.signed()).service == "catalog"
    refused = [
        keys.signed(key=Ed25519PrivateKey.generate()),
        keys.signed(kid="someone-else"),
        keys.signed(aud="library"),
        keys.signed(aud=["delivery", "library"]),
        keys.signed(aud=None),
        keys.signed(exp=int(NOW) - 31),
        keys.signed(iat=int(NOW) + 120, exp=int(NOW) + 180),
        keys.signed(exp=int(NOW) + 301),
        keys.signed(exp=int(NOW) - 1),  # over before it began, though within the clocks' leeway
        keys.signed(org="not-a-uuid"),
        keys.signed(org=None),
        keys.signed(mem=None),
        keys.signed(mem=7),
        jwt.encode({"aud": "delivery"}, "x" * 64, algorithm="HS256", headers={"kid": "catalog-1"}),
        "not.a.token",
        "",
    ]
    for token in refused:
        assert code_of(keys.verifier.verify, token) == "identity.unauthenticated"


def test_a_service_that_calls_for_itself_is_an_operator_and_acts_for_nobody() -> None:
    keys = Keys()
    token = keys.issuer.issue_for_itself("delivery")
    assert operator_caller({"authorization": f"Bearer {token}"}, keys.verifier).service == "catalog"
    assert code_of(service_caller, {"authorization": f"Bearer {token}"}, keys.verifier) == "identity.unauthenticated"


def test_a_token_that_was_signed_for_one_organization_opens_nothing_of_all() -> None:
    keys = Keys()
    token = keys.issuer.issue("delivery", ORGANIZATION, MEMBERSHIP)
    assert code_of(operator_caller, {"authorization": f"Bearer {token}"}, keys.verifier) == "identity.unauthenticated"
    for metadata in ({}, {"authorization": "Bearer x"}):
        assert code_of(operator_caller, metadata, keys.verifier) == "identity.unauthenticated"


def test_a_token_ends_after_its_minute_and_the_clocks_leeway() -> None:
    keys = Keys()
    token = keys.issuer.issue("delivery", ORGANIZATION, MEMBERSHIP)
    keys.now = NOW + 89
    assert keys.verifier.verify(token).service == "catalog"
    keys.now = NOW + 90
    assert code_of(keys.verifier.verify, token) == "identity.unauthenticated"


def test_an_issuer_that_no_verifier_would_accept_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="1 to 300"):
        ServiceTokenIssuer("k", Ed25519PrivateKey.generate(), lifetime_seconds=301)
