"""What is refused before anything is passed on, and that nothing of it comes back raw."""

import asyncio
import json
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.bodies import MAX_BODY_BYTES
from tests.gateway.conftest import ALLOWED_ORIGIN, ASSET_ID, ORGANIZATION_ID, UPLOAD_ID, Gateway, intent

COMPLETION = f"/api/v1/assets/uploads/{UPLOAD_ID}/completion"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"surprise": 1}, "surprise"),
        ({"media_type": "image/jpeg"}, "media_type"),
        ({"mediaType": 7}, "mediaType"),
        ({"mediaType": "jpeg"}, "mediaType"),
        ({"mediaType": "image/" + "x" * 250}, "mediaType"),
        ({"byteSize": 0}, "byteSize"),
        ({"byteSize": -1}, "byteSize"),
        ({"byteSize": 1.0}, "byteSize"),
        ({"byteSize": "1"}, "byteSize"),
        ({"byteSize": True}, "byteSize"),
        ({"byteSize": None}, "byteSize"),
        ({"accessClass": "PUBLIC"}, "accessClass"),
        ({"accessClass": "unspecified"}, "accessClass"),
        ({"displayName": ""}, "displayName"),
        ({"displayName": "   "}, "displayName"),
        ({"displayName": None}, "displayName"),
        ({"displayName": "x" * 256}, "displayName"),
        ({"displayName": "\ud800"}, "displayName"),
        ({"originalFilename": ["a"]}, "originalFilename"),
    ],
)
async def test_a_field_that_does_not_fit_is_named(gateway: Gateway, changes: dict[str, Any], field: str) -> None:
    response = await gateway.request_upload(intent(**changes))
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["code"] == "foundation.validation_failed"
    assert [one["field"] for one in error["meta"]["fields"]] == [field]
    assert "parse raw data" not in response.text  # words for people, not of the validator
    assert gateway.peers.requests == []


@pytest.mark.parametrize("missing", ["mediaType", "byteSize", "accessClass"])
async def test_a_required_field_that_is_missing_is_named(gateway: Gateway, missing: str) -> None:
    body = intent()
    del body[missing]
    response = await gateway.request_upload(body)
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"] == [{"field": missing, "message": "This field is required."}]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"mediaType":"image/jpeg","mediaType":"image/png","byteSize":1,"accessClass":"public"}',
        b'{"a":{"b":1,"b":2}}',
        b'{"byteSize":NaN}',
        b'{"byteSize":Infinity}',
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b'{"displayName":"\xff"}',
        b'{"byteSize":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 30_000,
    ],
)
async def test_a_body_that_is_not_one_clean_json_object_is_malformed(gateway: Gateway, body: bytes) -> None:
    response = await gateway.request_upload(body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "foundation.malformed_body"
    assert gateway.peers.requests == []


@pytest.mark.parametrize("kind", ["", "text/plain", "application/jsonx", "application/json; charset=utf-16"])
async def test_a_body_of_another_type_is_refused(gateway: Gateway, kind: str) -> None:
    response = await gateway.request_upload(**{"Content-Type": kind})
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "foundation.media_type_required"


async def test_json_with_its_charset_named_is_taken(gateway: Gateway) -> None:
    assert (await gateway.request_upload(**{"Content-Type": 'Application/JSON; charset="UTF-8"'})).status_code == 201


async def test_a_body_announced_as_too_large_is_refused_before_it_is_sent(gateway: Gateway) -> None:
    answer = await gateway.raw(_head(f"Content-Length: {MAX_BODY_BYTES + 1}", "Expect: 100-continue"))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer
    assert b"foundation.body_too_large" in answer


async def test_a_chunked_body_is_cut_off_as_soon_as_it_is_too_large(gateway: Gateway) -> None:
    chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    # Seventeen chunks and no end: the answer cannot have waited for one.
    answer = await gateway.raw(_head("Transfer-Encoding: chunked"), *([chunk] * 17))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert gateway.peers.requests == []


async def test_a_body_of_exactly_64_kib_is_read(gateway: Gateway) -> None:
    body = b'{"displayName":"' + b"x" * MAX_BODY_BYTES
    body = body[: MAX_BODY_BYTES - 2] + b'"}'
    response = await gateway.request_upload(body)
    assert response.json()["error"]["code"] == "foundation.validation_failed"


async def test_a_completion_takes_no_body(gateway: Gateway) -> None:
    response = await gateway.http.post(COMPLETION, headers=gateway.headers, content=b"{}")
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"][0]["field"] == "body"
    assert gateway.peers.requests == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "x",
        "01929c3e-7d4e-1a51-9f00-5c2b3c1a9e10",
        "01929c3e-7d4e-3a51-9f00-5c2b3c1a9e10",
        "01929c3e-7d4e-4a51-1f00-5c2b3c1a9e10",
        "{01929c3e-7d4e-4a51-9f00-5c2b3c1a9e10}",
        "01929c3e7d4e4a519f005c2b3c1a9e10",
    ],
)
async def test_an_idempotency_key_is_a_uuid_of_version_4_or_7(gateway: Gateway, key: str) -> None:
    response = await gateway.request_upload(**{"Idempotency-Key": key})
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"][0]["field"] == "Idempotency-Key"
    assert gateway.peers.requests == []


async def test_an_idempotency_key_of_version_7_is_taken(gateway: Gateway) -> None:
    assert (await gateway.request_upload(**{"Idempotency-Key": ASSET_ID})).status_code == 201


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Organization-Id", "Authorization"])
async def test_a_header_that_decides_something_stands_once(gateway: Gateway, name: str) -> None:
    headers = gateway.headers | {"Idempotency-Key": str(uuid.uuid4())}
    response = await gateway.http.post(
        "/api/v1/assets/uploads", headers=[*headers.items(), (name, headers[name])], json=intent()
    )
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"][0]["field"].lower() == name.lower()
    assert gateway.peers.requests == []


@pytest.mark.parametrize("organization", [None, "", "x", ORGANIZATION_ID.replace("-", ""), "{" + ORGANIZATION_ID + "}"])
async def test_the_organization_is_named_by_a_uuid(gateway: Gateway, organization: str | None) -> None:
    headers = {"Authorization": "Bearer a-session"}
    if organization is not None:
        headers["X-Organization-Id"] = organization
    response = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"][0]["field"] == "X-Organization-Id"


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Basic eDp5", "Bearer a b", "Bearer " + "x" * 257, "Bearer ä"]
)
async def test_without_a_well_formed_session_the_answer_is_401_whatever_else_is_wrong(
    gateway: Gateway, authorization: str | None
) -> None:
    headers: dict[str, Any] = {"X-Organization-Id": "nonsense"}
    if authorization is not None:
        headers["Authorization"] = authorization.encode("latin-1")
    response = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}?x=1", headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "identity.unauthenticated"


async def test_a_query_parameter_that_nobody_reads_is_refused(gateway: Gateway) -> None:
    response = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}?fields=id", headers=gateway.headers)
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"][0]["field"] == "fields"


@pytest.mark.parametrize(
    "path",
    ["/", "/api/v1/assets", "/api/v1/assets/", "/api/v1/assets/a/b", "/api/v1/assets//x", "/API/v1/assets/x", "/docs/"],
)
async def test_a_path_that_no_route_has_is_not_found(gateway: Gateway, path: str) -> None:
    response = await gateway.http.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "foundation.route_not_found"


async def test_an_encoded_slash_stays_inside_its_segment(gateway: Gateway) -> None:
    answer = await gateway.raw(
        f"GET /api/v1/assets/a%2Fb HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer s\r\n"
        f"X-Organization-Id: {ORGANIZATION_ID}\r\n\r\n".encode()
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert gateway.peers.requests[0].asset_id == "a%2Fb"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/api/v1/assets/x", "GET, HEAD"),
        ("GET", "/api/v1/assets/uploads", "POST"),
        ("DELETE", COMPLETION, "POST"),
        ("OPTIONS", "/healthz", "GET, HEAD"),
        ("TRACE", "/docs", "GET, HEAD"),
    ],
)
async def test_a_method_that_a_route_does_not_take_is_told_with_those_it_takes(
    gateway: Gateway, method: str, path: str, allow: str
) -> None:
    response = await gateway.http.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allow
    assert response.json()["error"]["code"] == "foundation.method_not_allowed"


async def test_a_good_request_id_is_kept_and_any_other_is_replaced(gateway: Gateway) -> None:
    kept = await gateway.http.get("/healthz", headers={"X-Request-Id": "Till-7.A_b"})
    assert kept.headers["x-request-id"] == "Till-7.A_b"
    for bad in ("", "a b", "x" * 65, "a\u202eb", "<script>"):
        response = await gateway.http.get("/healthz", headers=[(b"X-Request-Id", bad.encode())])
        replaced = response.headers["x-request-id"]
        assert replaced != bad
        assert replaced.isascii()
        assert replaced.isalnum()


async def test_what_was_sent_is_never_echoed_with_control_or_direction_characters(gateway: Gateway) -> None:
    response = await gateway.request_upload(intent(**{"a\u202e\r\nSet-Cookie: x=1\x00": 1}))
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"][0]["field"] == "a\ufffd\ufffd\ufffdSet-Cookie: x=1\ufffd"


async def test_too_much_head_is_refused_as_json_and_ends_the_connection(gateway: Gateway) -> None:
    answer = await gateway.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-A: " + b"a" * 17_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"foundation.headers_too_large"' in answer
    many = b"".join(b"X-%d: y\r\n" % number for number in range(4_000))
    assert (await gateway.raw(b"GET /healthz HTTP/1.1\r\n" + many + b"\r\n")).startswith(b"HTTP/1.1 431 ")


async def test_a_trailer_does_not_pass_as_a_header(gateway: Gateway) -> None:
    answer = await gateway.raw(
        b"POST " + COMPLETION.encode() + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Authorization: Bearer s\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\nX-Organization-Id: " + ORGANIZATION_ID.encode() + b"\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"field":"X-Organization-Id"' in answer


async def test_a_head_that_does_not_end_ends_its_connection(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.server.HEAD_SECONDS", 0.2)
    assert await gateway.raw(b"") == b""
    assert await gateway.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n") == b""


async def test_a_body_that_does_not_arrive_is_not_waited_for(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.bodies.BODY_SECONDS", 0.2)
    answer = await gateway.raw(_head("Content-Length: 100"), b"{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"foundation.body_incomplete"' in answer
    assert gateway.peers.requests == []


async def test_what_is_not_http_is_refused_as_json(gateway: Gateway) -> None:
    answer = await gateway.raw(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"foundation.malformed_request"' in answer


async def test_conflicting_lengths_are_refused(gateway: Gateway) -> None:
    answer = await gateway.raw(_head("Content-Length: 2", "Content-Length: 3"), b"{}")
    assert answer.startswith(b"HTTP/1.1 400 ")
    answer = await gateway.raw(_head("Content-Length: 2", "Transfer-Encoding: chunked"), b"{}")
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_more_requests_than_there_is_room_for_are_refused_and_the_others_answered(gateway: Gateway) -> None:
    gateway.peers.delay_seconds = 0.5
    path = f"/api/v1/assets/{ASSET_ID}"
    statuses = [
        response.status_code
        for response in await asyncio.gather(*(gateway.http.get(path, headers=gateway.headers) for _ in range(10)))
    ]
    assert sorted(statuses) == [200] * 4 + [503] * 6
    gateway.peers.delay_seconds = 0
    assert (await gateway.http.get(path, headers=gateway.headers)).status_code == 200


async def test_only_a_configured_origin_may_read_answers(gateway: Gateway) -> None:
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "idempotency-key,x-organization-id",
    }
    path = "/api/v1/assets/uploads"
    allowed = await gateway.http.options(path, headers=asked | {"Origin": ALLOWED_ORIGIN})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
    assert allowed.headers["access-control-allow-credentials"] == "true"

    for origin in ("https://app.example.com.evil.org", "http://app.example.com", "null"):
        refused = await gateway.http.options(path, headers=asked | {"Origin": origin})
        assert "access-control-allow-origin" not in refused.headers
        read = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers | {"Origin": origin})
        assert "access-control-allow-origin" not in read.headers

    read = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers | {"Origin": ALLOWED_ORIGIN})
    assert read.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
    assert "ETag" in read.headers["access-control-expose-headers"]
    assert "Origin" in read.headers["vary"]


_PATHS = ("/api/v1/assets/uploads", COMPLETION, f"/api/v1/assets/{ASSET_ID}", "/docs/x", "/openapi.json")
_NAMES = (
    "authorization", "cookie", "x-organization-id", "idempotency-key", "x-request-id", "traceparent", "tracestate",
    "content-type", "if-none-match", "origin", "expect", "upgrade", "host",
)  # fmt: skip
_JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=8,
)
_INTENTS = st.fixed_dictionaries(
    {
        "mediaType": st.text(max_size=20) | st.just("image/png"),
        "byteSize": st.integers() | st.floats(),
        "accessClass": st.sampled_from(["public", "private", "sensitive", "other"]),
    },
    optional={"displayName": st.text(), "originalFilename": st.none() | st.text()},
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=300) | (_JSON_VALUES | _INTENTS).map(lambda value: json.dumps(value).encode()),
    headers=st.dictionaries(st.sampled_from(_NAMES), st.binary(max_size=60), max_size=4),
    path=st.sampled_from(_PATHS) | st.binary(max_size=30).map(lambda tail: "/api/v1/assets/" + tail.decode("latin-1")),
    method=st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "PATCH"]),
)
async def test_nothing_that_is_sent_makes_the_gateway_fail(
    gateway: Gateway, body: bytes, headers: dict[str, bytes], path: str, method: str
) -> None:
    sent = {
        "authorization": b"Bearer s",
        "x-organization-id": ORGANIZATION_ID.encode(),
        "idempotency-key": str(uuid.uuid4()).encode(),
        "content-type": b"application/json",
        "content-length": str(len(body)).encode(),
    } | {name: value.translate(None, b"\r\n") for name, value in headers.items()}
    head = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in sent.items())
    line = method.encode() + b" " + path.encode("latin-1") + b" HTTP/1.1\r\n"
    answer = await gateway.raw(line + b"Connection: close\r\n" + head + b"\r\n", body)
    received, _, _ = answer.partition(b"\r\n\r\n")
    if received.startswith(b"HTTP/1.1 100 "):
        received = answer.split(b"\r\n\r\n")[1]
    assert received.startswith((b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4")), answer
    for one in received.split(b"\r\n"):
        assert one.decode("ascii").isprintable()


def _head(*headers: str) -> bytes:
    lines = [
        "POST /api/v1/assets/uploads HTTP/1.1",
        "Host: x",
        "Authorization: Bearer s",
        f"X-Organization-Id: {ORGANIZATION_ID}",
        f"Idempotency-Key: {uuid.uuid4()}",
        "Content-Type: application/json",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
