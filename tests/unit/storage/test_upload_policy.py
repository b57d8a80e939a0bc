import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from libs.storage.clients import StorageAccount
from libs.storage.upload_policy import open_upload_policy_signer

KEY = "in/k7q2m4xaparat6v2w5y2z7a4bc"
ACCOUNT = StorageAccount("example-assets", "us-east-1", "AKASSETSAPI", SecretStr("assets-secret"))


@pytest.mark.case("A2a-2.02")
async def test_signs_a_policy_of_the_exact_key_the_exact_content_type_and_a_length_up_to_the_declared_size() -> None:
    async with open_upload_policy_signer(ACCOUNT) as signer:
        before = datetime.now(UTC)
        signed = await signer.sign(KEY, "image/jpeg", 2_483_211, 600)
        after = datetime.now(UTC)

    policy = json.loads(base64.b64decode(signed.fields["policy"]))
    conditions = policy["conditions"]
    assert ["content-length-range", 1, 2_483_211] in conditions
    assert ["eq", "$Content-Type", "image/jpeg"] in conditions
    assert ["eq", "$key", KEY] in conditions
    assert {"bucket": "example-assets"} in conditions
    assert not [condition for condition in conditions if "starts-with" in condition]
    assert [condition[0] for condition in conditions if isinstance(condition, list)].count("content-length-range") == 1

    expires_at = datetime.fromisoformat(policy["expiration"])
    assert signed.expires_at == expires_at
    # The policy counts in whole seconds.
    assert before + timedelta(seconds=599) <= expires_at <= after + timedelta(seconds=600)

    assert signed.url == "https://example-assets.s3.us-east-1.amazonaws.com/"
    assert signed.fields["key"] == KEY
    assert signed.fields["Content-Type"] == "image/jpeg"
    assert {name.lower() for name in signed.fields} == {
        "key",
        "content-type",
        "x-amz-algorithm",
        "x-amz-credential",
        "x-amz-date",
        "policy",
        "x-amz-signature",
    }


@pytest.mark.case("A2a-2.02")
async def test_signs_for_as_long_as_asked_and_never_for_longer_than_ten_minutes_or_for_nothing() -> None:
    async with open_upload_policy_signer(ACCOUNT) as signer:
        before = datetime.now(UTC)
        short = await signer.sign(KEY, "image/png", 1, 60)
        assert short.expires_at <= datetime.now(UTC) + timedelta(seconds=60)
        assert short.expires_at >= before + timedelta(seconds=59)
        for max_bytes, seconds in ((1, 601), (1, 0), (0, 600)):
            with pytest.raises(ValueError, match="upload policy"):
                await signer.sign(KEY, "image/png", max_bytes, seconds)


async def test_a_policy_does_not_print_its_fields() -> None:
    async with open_upload_policy_signer(ACCOUNT) as signer:
        signed = await signer.sign(KEY, "image/png", 1, 600)
    assert signed.fields["x-amz-signature"] not in repr(signed)
