"""The public keys of known services, as configured."""

import base64
import uuid

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from libs.tenancy.service_tokens import (
    ActingFor,
    ServiceClaims,
    ServiceTokenIssuer,
    ServiceTokenVerifier,
    service_keys,
)

KEY = Ed25519PrivateKey.generate()
PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
RAW = base64.b64encode(KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


@pytest.mark.parametrize("text", [PEM, RAW], ids=["pem", "base64"])
def test_a_key_may_be_pem_or_base64_and_verifies_its_services_tokens(text: str) -> None:
    verifier = ServiceTokenVerifier("delivery", service_keys({"catalog-1": {"service": "catalog", "key": text}}))
    organization, membership = uuid.uuid4(), uuid.uuid4()

    claims = verifier.verify(ServiceTokenIssuer("catalog-1", KEY).issue("delivery", organization, membership))

    assert claims == ServiceClaims("catalog", ActingFor(organization, membership))


@pytest.mark.parametrize(
    "text",
    [
        "secret-looking-text",
        RAW[:-8],
        base64.b64encode(b"x" * 33).decode(),
        "-----BEGIN PUBLIC KEY-----\nsecret-looking-text\n-----END PUBLIC KEY-----",
        generate_private_key(65_537, 2_048)
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        .decode(),
    ],
    ids=["text", "truncated", "a-byte-too-many", "broken-pem", "another-kind-of-key"],
)
def test_anything_else_is_refused_by_the_keys_name_and_not_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="'catalog-1' is not an Ed25519 public key") as caught:
        service_keys({"catalog-1": {"service": "catalog", "key": text}})

    assert "secret" not in str(caught.value)
