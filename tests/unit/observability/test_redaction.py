import uuid
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.observability.redaction import REDACTED, is_sensitive_name, redact_fields, redact_text

URL = (
    "https://example-assets.s3.us-east-1.amazonaws.com/m/token/original.webp?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Credential=AKEXAMPLE%2F20261006%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20261006T140311Z"
    "&X-Amz-Security-Token=FwoGZXIvYXdz%2F%2F&X-Amz-Signature=0123456789abcdef&X-Amz-Expires=60"
)
HIDDEN = ("AKEXAMPLE", "FwoGZXIvYXdz", "0123456789abcdef")


@pytest.mark.case("A2a-1.08")
def test_redacts_x_amz_signature_x_amz_credential_and_x_amz_security_token_from_a_logged_url() -> None:
    shown = redact_text(f"fetched {URL} in 12 ms")

    assert shown == (
        "fetched https://example-assets.s3.us-east-1.amazonaws.com/m/token/original.webp?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        f"&X-Amz-Credential={REDACTED}&X-Amz-Date=20261006T140311Z"
        f"&X-Amz-Security-Token={REDACTED}&X-Amz-Signature={REDACTED}&X-Amz-Expires=60 in 12 ms"
    )


@pytest.mark.case("A2a-1.08")
@pytest.mark.parametrize("times", [1, 2, 3])
def test_redacts_them_in_a_percent_encoded_url_too(times: int) -> None:
    encoded = URL
    for _ in range(times):
        encoded = quote(encoded, safe="")
    shown = redact_text(f"GET /login?next={encoded}&lang=es")

    assert not [secret for secret in HIDDEN if secret in shown]
    assert "X-Amz-Expires" in shown
    assert shown.endswith("&lang=es")


@pytest.mark.case("A2a-1.08")
@pytest.mark.parametrize("before", ["", "?", "&", " ", "\t", '"', "'", ",", ";", "%3F", "%26"])
@pytest.mark.parametrize("name", ["X-Amz-Signature", "x-amz-credential", "X-AMZ-SECURITY-TOKEN", "Signature", "Policy"])
def test_redacts_a_parameter_wherever_it_stands_and_however_it_is_spelt(before: str, name: str) -> None:
    equals = "%3D" if before.startswith("%") else "="
    shown = redact_text(f"{before}{name}{equals}hidden-value")

    assert "hidden" not in shown
    assert name in shown


@pytest.mark.case("A2a-1.09")
def test_redacts_a_policy_parameter_and_an_x_amz_signature_field() -> None:
    fields = {
        "key": "in/token",
        "Policy": "eyJleHBpcmF0aW9uIjoi",
        "x-amz-signature": "0123456789abcdef",
        "x-amz-date": "20261006T140311Z",
        "retentionPolicy": "one day",
        "form": {"fields": [{"policy": "eyJleHBpcmF0aW9uIjoi"}, "a", 1]},
    }

    assert redact_fields(fields) == {
        "key": "in/token",
        "Policy": REDACTED,
        "x-amz-signature": REDACTED,
        "x-amz-date": "20261006T140311Z",
        "retentionPolicy": "one day",
        "form": {"fields": [{"policy": REDACTED}, "a", 1]},
    }
    assert redact_text("POST /?key=in/token&policy=eyJleHBp&x=1") == f"POST /?key=in/token&policy={REDACTED}&x=1"
    assert redact_text("retentionPolicy=day") == "retentionPolicy=day"


@pytest.mark.case("A2a-1.09")
@pytest.mark.parametrize(
    "text",
    [
        "{'policy': 'hidden', 'key': 'in/token'}",
        '{"policy":"hidden","key":"in/token"}',
        r'"{\"policy\": \"hidden\", \"key\": \"in/token\"}"',
        "{'X-Amz-Signature': 'hidden', 'key': 'in/token'}",
    ],
)
def test_redacts_fields_inside_text_that_quotes_them(text: str) -> None:
    shown = redact_text(text)
    assert "hidden" not in shown
    assert "in/token" in shown


@pytest.mark.parametrize(
    "name",
    [
        "signature",
        "accessToken",
        "session_token",
        "Authorization",
        "db-password",
        "clientSecret",
        "set-cookie",
        "AWSToken",
    ],
)
def test_a_field_is_sensitive_by_a_word_of_its_name(name: str) -> None:
    assert is_sensitive_name(name)


@pytest.mark.parametrize(
    "name", ["retentionPolicy", "policy_version", "tokenizer", "designature", "key", "secretary", ""]
)
def test_a_field_that_only_resembles_one_is_not(name: str) -> None:
    assert not is_sensitive_name(name)


def test_redacts_a_bearer_token_and_the_password_of_a_url() -> None:
    assert redact_text("authorization: Bearer abc.def-ghi") == f"authorization: Bearer {REDACTED}"
    assert redact_text("postgresql://login:kept@quiet@host:5432/db") == f"postgresql://login:{REDACTED}@host:5432/db"
    assert redact_text("http://127.0.0.1:8600/api/v1/assets") == "http://127.0.0.1:8600/api/v1/assets"


def test_control_and_direction_characters_never_reach_a_line_raw() -> None:
    shown = redact_fields({"na\nme": "a\r\nINFO forged\x1b[31m\x00\x9b\u202egpj\u2028\ufeff\ud800"})
    assert shown == {"na\\nme": "a\\r\\nINFO forged\\x1b[31m\\x00\\x9b\\u202egpj\\u2028\\ufeff\\ud800"}


def test_values_that_json_does_not_have_become_text_and_bytes_their_length() -> None:
    identifier = uuid.uuid4()
    assert redact_fields(
        {
            "id": identifier,
            "at": datetime(2026, 1, 2, tzinfo=UTC),
            "body": b"secret bytes",
            "large": 2**70,
            "odd": float("nan"),
            "set": {1},
            "none": None,
            "yes": True,
        }
    ) == {
        "id": str(identifier),
        "at": "2026-01-02T00:00:00+00:00",
        "body": "<12 bytes>",
        "large": str(2**70),
        "odd": "nan",
        "set": [1],
        "none": None,
        "yes": True,
    }


def test_a_field_is_found_at_any_depth() -> None:
    deep: dict[str, object] = {"token": "hidden"}
    for _ in range(40):
        deep = {"inner": deep}
    assert "hidden" not in str(redact_fields(deep))


@given(st.text(), st.text(alphabet="abc=&?%3D%26;,\"'", max_size=200))
def test_no_text_breaks_it_and_a_signature_after_any_text_is_redacted(before: str, noise: str) -> None:
    shown = redact_text(f"{before} {noise}&X-Amz-Signature=f00dfeedf00dfeed")
    assert "f00dfeed" not in shown
