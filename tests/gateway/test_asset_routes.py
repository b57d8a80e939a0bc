"""What the asset routes pass on, and what they answer."""

import hashlib
import uuid
from typing import Any

import pytest
from ninaku.admission.v1 import admission_pb2
from ninaku.assets.v1 import resources_pb2
from ninaku.library.v1 import library_pb2

from libs.assets.messages import asset_document
from libs.errors.refusal import FieldViolation, Refusal
from libs.errors.registry import REGISTRY
from services.gateway.assets_documents import AssetEnvelope, RequestedUploadEnvelope
from tests.gateway.conftest import ASSET_ID, ETAG, ORGANIZATION_ID, UPLOAD_ID, Gateway, intent, ready_asset, rpc_error


async def test_an_intent_is_passed_on_as_it_was_written_and_answered_with_the_short_asset_and_the_form(
    gateway: Gateway,
) -> None:
    key = uuid.uuid4()
    response = await gateway.request_upload(**{"Idempotency-Key": str(key).upper()})

    assert response.status_code == 201
    assert response.json() == {
        "data": {
            "asset": {
                "id": ASSET_ID,
                "status": "ready",
                "accessClass": "public",
                "mediaKind": "image",
                "sourceKind": "upload",
                "displayName": "Hamburguesa clásica",
                "createdAt": "2026-10-06T14:03:11.402Z",
            },
            "upload": {
                "id": UPLOAD_ID,
                "method": "POST",
                "url": "https://bucket.s3.us-east-1.amazonaws.com/",
                "fields": {"key": "in/x", "Content-Type": "image/jpeg", "X-Amz-Signature": "secret-signature"},
                "maxBytes": 2_483_211,
                "expiresAt": "2026-10-06T14:13:11.402Z",
            },
        }
    }
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["location"] == f"/api/v1/assets/{ASSET_ID}"
    assert "idempotent-replayed" not in response.headers
    RequestedUploadEnvelope.model_validate(response.json())
    assert gateway.peers.requests == [
        admission_pb2.RequestUploadRequest(
            idempotency_key=str(key),
            media_type="image/jpeg",
            byte_size=2_483_211,
            access_class=resources_pb2.ACCESS_CLASS_PUBLIC,
            display_name="Hamburguesa clásica",
            original_filename="hamburguesa.jpg",
        )
    ]
    (metadata,) = gateway.peers.metadata
    assert metadata["authorization"] == "Bearer a-session"
    assert metadata["x-organization-id"] == ORGANIZATION_ID
    assert metadata["x-request-id"] == response.headers["x-request-id"]


async def test_names_that_are_left_out_are_absent_and_not_empty(gateway: Gateway) -> None:
    body = intent()
    del body["displayName"], body["originalFilename"]
    assert (await gateway.request_upload(body)).status_code == 201
    (request,) = gateway.peers.requests
    assert not request.HasField("display_name")
    assert not request.HasField("original_filename")


async def test_a_replay_is_marked_and_may_have_no_form(gateway: Gateway) -> None:
    gateway.peers.requested = lambda: admission_pb2.RequestUploadResponse(asset=ready_asset(), replayed=True)
    response = await gateway.request_upload()
    assert response.status_code == 201
    assert response.headers["idempotent-replayed"] == "true"
    assert response.json()["data"]["upload"] is None
    RequestedUploadEnvelope.model_validate(response.json())


async def test_a_size_beyond_64_bits_is_left_to_admission_to_refuse_as_too_large(gateway: Gateway) -> None:
    assert (await gateway.request_upload(intent(byteSize=10**30))).status_code == 201
    assert gateway.peers.requests[0].byte_size == 2**63 - 1


async def test_a_completion_is_accepted_with_the_whole_asset_and_its_tag(gateway: Gateway) -> None:
    response = await gateway.http.post(f"/api/v1/assets/uploads/{UPLOAD_ID}/completion", headers=gateway.headers)
    assert response.status_code == 202
    assert response.json() == {"data": asset_document(ready_asset())}
    assert response.headers["etag"] == ETAG
    assert response.headers["cache-control"] == "no-store"
    assert gateway.peers.requests == [admission_pb2.CompleteUploadRequest(upload_id=UPLOAD_ID)]


async def test_an_asset_is_read_with_its_tag_under_private_no_cache(gateway: Gateway) -> None:
    response = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers)
    assert response.status_code == 200
    assert response.json() == {"data": asset_document(ready_asset())}
    AssetEnvelope.model_validate(response.json())
    assert response.headers["etag"] == ETAG
    assert response.headers["cache-control"] == "private, no-cache"
    assert {"authorization", "cookie", "x-organization-id"} <= {
        name.strip().lower() for name in response.headers["vary"].split(",")
    }
    assert gateway.peers.requests == [library_pb2.GetAssetRequest(asset_id=ASSET_ID)]


async def test_every_document_that_can_be_served_is_as_it_is_documented(gateway: Gateway) -> None:
    failed = resources_pb2.Asset(
        id=ASSET_ID,
        status=resources_pb2.ASSET_STATUS_FAILED,
        access_class=resources_pb2.ACCESS_CLASS_SENSITIVE,
        media_kind=resources_pb2.MEDIA_KIND_IMAGE,
        source_kind=resources_pb2.SOURCE_KIND_AI_GENERATED,
        created_at=ready_asset().created_at,
        archived_at=ready_asset().created_at,
        failure=resources_pb2.AssetFailure(code="assets.image_corrupt", message="Damaged.", remedy="Save it again."),
        ai_generated=True,
        renditions=[resources_pb2.Rendition(name=name) for name in ("thumbnail", "tile", "card", "detail")],
    )
    gateway.peers.read = lambda: library_pb2.GetAssetResponse(asset=failed, etag=ETAG)
    response = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers)
    AssetEnvelope.model_validate(response.json())
    assert response.json()["data"]["failure"] == {"message": "Damaged.", "remedy": "Save it again."}


async def test_a_tag_that_the_library_recognizes_answers_304_without_a_body(gateway: Gateway) -> None:
    gateway.peers.read = lambda: library_pb2.GetAssetResponse(etag=ETAG, not_modified=True)
    response = await gateway.http.get(
        f"/api/v1/assets/{ASSET_ID}",
        headers=[*gateway.headers.items(), ("If-None-Match", '"x"'), ("If-None-Match", ETAG)],
    )
    assert response.status_code == 304
    assert response.content == b""
    assert "content-type" not in response.headers
    assert response.headers["etag"] == ETAG
    assert response.headers["cache-control"] == "private, no-cache"
    assert gateway.peers.requests[0].if_none_match == f'"x", {ETAG}'


async def test_head_has_the_headers_of_get_and_no_body(gateway: Gateway) -> None:
    read = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers)
    response = await gateway.http.head(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers)
    assert response.status_code == 200
    assert response.content == b""
    same = ("etag", "content-type", "content-length", "cache-control")
    assert [response.headers[name] for name in same] == [read.headers[name] for name in same]


@pytest.mark.parametrize("code", sorted(REGISTRY))
async def test_a_refusal_keeps_its_code_status_sentence_and_remedy(gateway: Gateway, code: str) -> None:
    gateway.peers.requested = _refusing(code)
    response = await gateway.request_upload()
    entry = REGISTRY[code]
    assert response.status_code == entry.http_status
    assert response.json() == {"error": {"code": code, "message": entry.message, "meta": {"remedy": entry.remedy}}}
    assert response.headers["cache-control"] == "no-store"
    assert ("retry-after" in response.headers) == (entry.http_status in (429, 503))
    assert ("www-authenticate" in response.headers) == (entry.http_status == 401)


async def test_the_wait_that_a_refusal_names_is_the_wait_that_is_asked_for(gateway: Gateway) -> None:
    gateway.peers.requested = _refusing("foundation.rate_limited", meta={"retryAfterSeconds": "17"})
    response = await gateway.request_upload()
    assert response.status_code == 429
    assert response.headers["retry-after"] == "17"
    gateway.peers.requested = _refusing("foundation.rate_limited", meta={"retryAfterSeconds": "1\r\nX-Evil: 1"})
    assert (await gateway.request_upload()).headers["retry-after"] == "60"


async def test_a_services_field_is_named_as_http_names_it(gateway: Gateway) -> None:
    gateway.peers.requested = _refusing(
        "foundation.validation_failed",
        violations=(
            FieldViolation("display_name", "Control \u202echaracters\x07 are not allowed."),
            FieldViolation("idempotency_key", "Not a UUID."),
        ),
    )
    response = await gateway.request_upload()
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"] == [
        {"field": "displayName", "message": "Control \ufffdcharacters\ufffd are not allowed."},
        {"field": "Idempotency-Key", "message": "Not a UUID."},
    ]


async def test_a_peer_that_fails_shows_nothing_of_why(gateway: Gateway) -> None:
    gateway.peers.read = rpc_error("password=hunter2")
    response = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "foundation.internal"
    assert "hunter2" not in response.text


async def test_a_peer_that_is_down_is_503_with_a_wait_and_readiness_does_not_care(gateway: Gateway) -> None:
    await gateway.stop_peers()
    response = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "foundation.unavailable"
    assert int(response.headers["retry-after"]) > 0
    assert (await gateway.http.get("/readyz")).status_code == 200


async def test_the_cookie_carries_the_session_and_is_useless_without_the_organization(gateway: Gateway) -> None:
    cookie = {"Cookie": "theme=dark; ninaku_session=from-cookie; other=1"}
    path = f"/api/v1/assets/{ASSET_ID}"
    alone = await gateway.http.get(path, headers=cookie)
    assert alone.status_code == 400
    assert alone.json()["error"]["meta"]["fields"][0]["field"] == "X-Organization-Id"
    assert gateway.peers.requests == []

    assert (await gateway.http.get(path, headers=cookie | {"X-Organization-Id": ORGANIZATION_ID})).status_code == 200
    assert gateway.peers.metadata[-1]["authorization"] == "Bearer from-cookie"

    assert (await gateway.http.get(path, headers=cookie | gateway.headers)).status_code == 200
    assert gateway.peers.metadata[-1]["authorization"] == "Bearer a-session"


@pytest.mark.parametrize(
    "cookies",
    [
        '{"consent": true, "at": "9:00, noon"}; ninaku_session=a-session',
        "name with space=1; [x]=y; ninaku_session=a-session",
        'odd="; ninaku_session=a-session',
        "flag; ninaku_session=a-session;",
        'ninaku_session="a-session"; caf\u00e9=1',
        "xninaku_session=other; ninaku_session=a-session",
    ],
)
async def test_other_cookies_of_the_site_do_not_end_a_session(gateway: Gateway, cookies: str) -> None:
    headers = [(b"Cookie", cookies.encode("latin-1")), (b"X-Organization-Id", ORGANIZATION_ID.encode())]
    assert (await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=headers)).status_code == 200
    assert gateway.peers.metadata[-1]["authorization"] == "Bearer a-session"


async def test_of_two_session_cookies_none_counts(gateway: Gateway) -> None:
    for lines in (["ninaku_session=planted; ninaku_session=own"], ["ninaku_session=planted", "ninaku_session=own"]):
        headers = [("Cookie", line) for line in lines] + [("X-Organization-Id", ORGANIZATION_ID)]
        response = await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=headers)
        assert response.json()["error"]["code"] == "identity.unauthenticated"
    assert gateway.peers.requests == []


async def test_a_trace_is_carried_on(gateway: Gateway) -> None:
    trace_id, tracestate = hashlib.md5(b"trace", usedforsecurity=False).hexdigest(), "vendor=1"
    headers = gateway.headers | {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01", "tracestate": tracestate}
    await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=headers)
    assert gateway.peers.metadata[-1]["traceparent"].split("-")[1] == trace_id
    await gateway.http.get(f"/api/v1/assets/{ASSET_ID}", headers=gateway.headers | {"traceparent": "nonsense"})
    assert "nonsense" not in gateway.peers.metadata[-1].get("traceparent", "")


def _refusing(code: str, **more: Any) -> Any:
    def refuse() -> Any:
        raise Refusal(code, **more)

    return refuse
