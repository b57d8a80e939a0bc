"""Intents and completions, with no worker running (A2b, A2c)."""

import asyncio
import base64
import json
import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.database import Connection
from tests.support.stack import Hire, Member, Stack

MEBIBYTE = 1_048_576


async def written(connection: Connection, organization_id: uuid.UUID) -> dict[str, Any]:
    """Every row of an organization that an upload touches, with the transaction that last wrote each."""
    return {
        table: [
            tuple(row)
            for row in await connection.fetch(
                f"SELECT xmin::text, t.* FROM {table} t WHERE organization_id = $1 ORDER BY 1, 2", organization_id
            )
        ]
        for table in (
            "assets.assets",
            "assets.asset_variants",
            "assets.uploads",
            "assets.processing_jobs",
            "assets.organization_usage",
            "audit.records",
        )
    }


@pytest.mark.case("A2b.01")
async def test_an_intent_gets_a_form_bound_to_key_type_and_size_a_pending_asset_and_a_reserved_quota_recorded_once(
    hire: Hire, owner_connection: Connection, stack: Stack
) -> None:
    member = await hire()
    response = await member.request_upload(
        mediaType="image/png", byteSize=2_483, displayName="  Hamburguesa clásica ", originalFilename="h.png"
    )

    assert response.status_code == 201
    assert response.headers["cache-control"] == "no-store"
    asset, upload = response.json()["data"]["asset"], response.json()["data"]["upload"]
    assert asset == {
        "id": asset["id"],
        "status": "pending",
        "accessClass": "public",
        "mediaKind": "image",
        "sourceKind": "upload",
        "displayName": "Hamburguesa clásica",
        "createdAt": asset["createdAt"],
    }
    assert uuid.UUID(asset["id"]).version == 7
    assert uuid.UUID(upload["id"]).version == 7
    assert (upload["method"], upload["maxBytes"]) == ("POST", 2_483)
    left = datetime.fromisoformat(upload["expiresAt"]) - datetime.now(UTC)
    assert timedelta(seconds=500) < left <= timedelta(seconds=600)

    fields = upload["fields"]
    assert re.fullmatch(r"in/[a-z2-7]{26}", fields["key"])
    assert fields["Content-Type"] == "image/png"
    policy = json.loads(base64.b64decode(next(value for name, value in fields.items() if name.lower() == "policy")))
    conditions = policy["conditions"]
    assert ["content-length-range", 1, 2_483] in conditions
    assert _binds(conditions, "key", fields["key"])
    assert _binds(conditions, "Content-Type", "image/png")

    organization = member.person.organization_id
    row = await owner_connection.fetchrow(
        "SELECT a.status, u.state, u.staging_object_key, u.declared_byte_size, a.created_by_membership_id "
        "FROM assets.assets a JOIN assets.uploads u ON u.asset_id = a.id WHERE a.organization_id = $1",
        organization,
    )
    assert tuple(row) == ("pending", "issued", fields["key"], 2_483, member.person.membership_id)
    usage = await owner_connection.fetchrow(
        "SELECT active_asset_count, stored_bytes, reserved_bytes FROM assets.organization_usage "
        "WHERE organization_id = $1",
        organization,
    )
    assert tuple(usage) == (1, 0, 2_483)
    records = await owner_connection.fetch(
        "SELECT action_code, resource_id, outcome, after_attributes, request_id FROM audit.records "
        "WHERE organization_id = $1",
        organization,
    )
    assert [tuple(record)[:3] for record in records] == [
        ("assets.asset.upload_requested", uuid.UUID(asset["id"]), "succeeded")
    ]
    assert json.loads(records[0]["after_attributes"]) == {
        "mediaType": "image/png",
        "byteSize": 2_483,
        "accessClass": "public",
    }
    assert records[0]["request_id"] == response.headers["x-request-id"]
    signature = next(value for name, value in fields.items() if name.lower().endswith("signature"))
    for secret in (signature, fields["key"], member.person.token):
        assert secret not in stack.written()


@pytest.mark.case("A2b.01")
async def test_the_storage_takes_exactly_what_the_form_says(hire: Hire) -> None:
    member = await hire()
    upload = (await member.request_upload(byteSize=10)).json()["data"]["upload"]
    other_type = upload | {"fields": upload["fields"] | {"Content-Type": "image/svg+xml"}}
    other_key = upload | {"fields": upload["fields"] | {"key": "in/" + "a" * 26}}
    assert (await member.post_file(upload, b"x" * 11)).status_code == 400
    assert (await member.post_file(upload, b"")).status_code == 400
    assert (await member.post_file(other_type, b"x" * 10)).status_code == 403
    assert (await member.post_file(other_key, b"x" * 10)).status_code == 403
    assert (await member.post_file(upload, b"x" * 10)).status_code == 204


@pytest.mark.case("A2b.02")
async def test_a_replay_answers_the_asset_as_it_is_now_with_a_fresh_form_and_another_body_is_refused(
    hire: Hire, owner_connection: Connection
) -> None:
    member, key = await hire(), uuid.uuid4()
    first = await member.request_upload(key, displayName="One")
    before = await written(owner_connection, member.person.organization_id)

    again = await member.request_upload(key, displayName=" One ")
    assert again.status_code == 201
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert again.json()["data"]["asset"] == first.json()["data"]["asset"]
    forms = [response.json()["data"]["upload"] for response in (first, again)]
    assert forms[0]["id"] == forms[1]["id"]
    assert forms[0]["fields"]["key"] == forms[1]["fields"]["key"]
    assert (await member.post_file(forms[1], b"x" * 1_000)).status_code == 204

    other = await member.request_upload(key, displayName="Two")
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "idempotency.key_reused"
    assert await written(owner_connection, member.person.organization_id) == before

    await member.complete(forms[0]["id"])
    after = await member.request_upload(key, displayName="One")
    assert after.status_code == 201
    assert after.json()["data"]["asset"]["status"] == "processing"
    assert after.json()["data"]["upload"] is None

    stranger = await hire()
    assert "idempotent-replayed" not in (await stranger.request_upload(key, displayName="One")).headers


async def test_a_key_whose_request_is_still_running_is_told_to_wait(hire: Hire, owner_connection: Connection) -> None:
    member, key = await hire(), uuid.uuid4()
    async with owner_connection.transaction():
        await owner_connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('assets.uploads:' || $1::uuid || ':' || $2::uuid, 0))",
            member.person.organization_id,
            key,
        )
        response = await member.request_upload(key)
    assert response.status_code == 409
    assert response.json()["error"]["code"] == "idempotency.in_progress"
    assert (await member.request_upload(key)).status_code == 201


@pytest.mark.case("A2b.03")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mediaType": "image/svg+xml"}, "assets.media_type_unsupported"),
        ({"mediaType": "image/heic"}, "assets.media_type_unsupported"),
        ({"mediaType": "application/x-unheard-of"}, "assets.media_type_unsupported"),
        ({"byteSize": 10 * MEBIBYTE + 1}, "assets.file_too_large"),
        ({"byteSize": 10**24}, "assets.file_too_large"),
        ({"accessClass": "private"}, "assets.access_class_unavailable"),
        ({"accessClass": "sensitive"}, "assets.access_class_unavailable"),
    ],
)
async def test_what_cannot_be_taken_is_refused_before_anything_is_written(
    hire: Hire, owner_connection: Connection, changes: dict[str, Any], code: str
) -> None:
    member = await hire()
    before = await written(owner_connection, member.person.organization_id)
    response = await member.request_upload(**changes)
    assert response.status_code == 422
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["meta"]["remedy"]
    assert await written(owner_connection, member.person.organization_id) == before
    assert (await member.request_upload(byteSize=10 * MEBIBYTE)).status_code == 201


@pytest.mark.case("A2b.04")
@pytest.mark.parametrize(
    ("usage", "code"),
    [
        ("active_asset_count = 4999", "assets.asset_limit_reached"),
        (f"stored_bytes = {10_240 * MEBIBYTE - 1_500}", "assets.storage_limit_reached"),
    ],
)
async def test_at_the_plans_limit_one_of_two_concurrent_intents_is_admitted_and_then_none(
    hire: Hire, owner_connection: Connection, usage: str, code: str
) -> None:
    member = await hire()
    await owner_connection.execute(
        f"UPDATE assets.organization_usage SET {usage} WHERE organization_id = $1", member.person.organization_id
    )
    responses = await asyncio.gather(member.request_upload(), member.request_upload())
    assert sorted(response.status_code for response in responses) == [201, 422]
    refused = next(response for response in responses if response.status_code == 422)
    assert refused.json()["error"]["code"] == code
    assert (await member.request_upload()).json()["error"]["code"] == code


@pytest.mark.case("A2b.05")
async def test_an_organization_has_at_most_20_open_uploads(hire: Hire, owner_connection: Connection) -> None:
    member = await hire()
    responses = await asyncio.gather(*(member.request_upload() for _ in range(22)))
    assert sorted(response.status_code for response in responses) == [201] * 20 + [422] * 2
    assert {response.json()["error"]["code"] for response in responses if response.status_code == 422} == {
        "assets.too_many_open_uploads"
    }
    opened = await owner_connection.fetchval(
        "SELECT count(*) FROM assets.uploads WHERE organization_id = $1", member.person.organization_id
    )
    assert opened == 20


async def test_more_than_30_intents_a_minute_are_told_how_long_to_wait(hire: Hire) -> None:
    member = await hire()
    statuses = [(await member.request_upload(accessClass="public", byteSize=1)).status_code for _ in range(30)]
    assert statuses == [201] * 20 + [422] * 10
    response = await member.request_upload()
    assert response.status_code == 429
    assert response.json()["error"]["code"] == "foundation.rate_limited"
    assert 1 <= int(response.headers["retry-after"]) <= 60


@pytest.mark.case("A2b.06")
async def test_without_storage_an_intent_is_answered_503_before_anything_else_is_looked_at(
    hire: Hire, stack: Stack, owner_connection: Connection
) -> None:
    environment = {"DATABASE_URL": stack.dsn("ninaku_admission")}
    with (
        stack.running("services.admission.main", environment) as admission,
        stack.running("services.gateway.main", stack.gateway_variables(admission=admission.address)) as gateway,
    ):
        member = await hire(gateway_url=f"http://{gateway.address}")
        before = await written(owner_connection, member.person.organization_id)
        unknown = Member(
            type(member.person)(**{**vars(member.person), "token": "nobodys"}), member.http, member.gateway_url
        )
        for someone in (member, unknown):
            response = await someone.request_upload()
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "assets.storage_unavailable"
            assert int(response.headers["retry-after"]) > 0
        assert await written(owner_connection, member.person.organization_id) == before


@pytest.mark.case("A2b.07")
@pytest.mark.parametrize(
    ("role", "business_unit"), [("cashier", None), ("waiter", None), ("manager", "Sucursal Norte")]
)
async def test_who_may_not_is_refused_plainly_and_the_refusal_is_on_record(
    hire: Hire, owner_connection: Connection, role: str, business_unit: str | None
) -> None:
    owner = await hire()
    organization = owner.person.organization_id
    requested = (await owner.request_upload()).json()["data"]
    member = await hire(organization, role, business_unit)
    for response in (
        await member.request_upload(),
        await member.complete(requested["upload"]["id"]),
        await member.read(requested["asset"]["id"]),
    ):
        assert response.status_code == 403
        assert response.json()["error"]["code"] == "assets.action_forbidden"
    denials = await owner_connection.fetch(
        "SELECT permission_code, authorization_decision, actor_id FROM audit.records "
        "WHERE organization_id = $1 AND outcome = 'denied' ORDER BY id",
        organization,
    )
    assert [tuple(denial) for denial in denials] == [
        (permission, "forbidden", member.person.actor_id)
        for permission in ("assets.media.manage", "assets.media.manage", "assets.media.view")
    ]


@pytest.mark.case("A2b.07")
async def test_a_lapsed_plan_refuses_an_intent_by_its_capability_and_still_completes_and_reads(
    hire: Hire, owner_connection: Connection
) -> None:
    member = await hire()
    requested = (await member.request_upload()).json()["data"]
    await owner_connection.fetchval(
        "SELECT platform.end_subscription($1, now() - interval '1 minute')", member.person.organization_id
    )
    response = await member.request_upload()
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "platform.capability_not_entitled"
    assert (await member.complete(requested["upload"]["id"])).status_code == 202
    assert (await member.read(requested["asset"]["id"])).status_code == 200


@pytest.mark.case("A2b.07")
async def test_a_manager_of_the_whole_organization_may(hire: Hire) -> None:
    owner = await hire()
    manager = await hire(owner.person.organization_id, "manager")
    assert (await manager.request_upload()).status_code == 201


async def test_a_session_that_is_unknown_or_revoked_is_401_and_a_foreign_organization_403(
    hire: Hire, owner_connection: Connection
) -> None:
    member, stranger = await hire(), await hire()
    asset_id = (await member.request_upload()).json()["data"]["asset"]["id"]
    foreign = await member.read(asset_id, **{"X-Organization-Id": str(stranger.person.organization_id)})
    assert foreign.status_code == 403
    assert foreign.json()["error"]["code"] == "tenant.context_rejected"
    unknown = await member.read(asset_id, Authorization="Bearer nobodys")
    assert unknown.status_code == 401
    await owner_connection.execute(
        "UPDATE identity.sessions SET revoked_at = now() WHERE token_hash = $1", member.person.token_hash
    )
    assert (await member.read(asset_id)).status_code == 401
    assert (await member.request_upload()).status_code == 401


@pytest.mark.case("A2b.09")
async def test_an_asset_is_pending_until_it_is_completed_and_then_processing_with_no_urls(hire: Hire) -> None:
    member = await hire()
    requested = (await member.request_upload(originalFilename="h.jpg")).json()["data"]
    for status in ("pending", "processing"):
        response = await member.read(requested["asset"]["id"])
        asset = response.json()["data"]
        assert (response.status_code, asset["status"]) == (200, status)
        assert asset["renditions"] == {"thumbnail": None, "tile": None, "card": None, "detail": None}
        assert (asset["width"], asset["height"], asset["byteSize"], asset["readyAt"]) == (None, None, None, None)
        assert (asset["failureCode"], asset["failure"]) == (None, None)
        assert asset["originalFilename"] == "h.jpg"
        await member.complete(requested["upload"]["id"])


@pytest.mark.case("A2b.10")
async def test_a_foreign_an_unknown_and_a_malformed_id_are_answered_alike(hire: Hire) -> None:
    member, stranger = await hire(), await hire()
    foreign = (await stranger.request_upload()).json()["data"]
    answers = [
        await member.read(foreign["asset"]["id"]),
        await member.read(str(uuid.uuid4())),
        await member.read("not-an-id"),
        await member.read("{" + foreign["asset"]["id"] + "}"),
        await member.read("%00"),
        await member.complete(foreign["upload"]["id"]),
        await member.complete(str(uuid.uuid4())),
        await member.complete("not-an-id"),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["error"]["code"] == "assets.not_found"
    names = [sorted(set(answer.headers) - {"date", "x-request-id"}) for answer in answers]
    assert all(one == names[0] for one in names)


@pytest.mark.case("A2c.01")
async def test_a_completion_queues_one_job_and_repeats_answer_without_writing(
    hire: Hire, owner_connection: Connection
) -> None:
    member = await hire()
    requested = (await member.request_upload()).json()["data"]
    first = await member.complete(requested["upload"]["id"])
    assert first.status_code == 202
    assert first.json()["data"]["status"] == "processing"
    before = await written(owner_connection, member.person.organization_id)
    assert len(before["assets.processing_jobs"]) == 1

    again = await member.complete(requested["upload"]["id"])
    assert again.status_code == 202
    assert again.json() == first.json()
    assert await written(owner_connection, member.person.organization_id) == before
    read = await member.read(requested["asset"]["id"])
    assert read.json() == first.json()
    assert read.headers["etag"] == first.headers["etag"]


@pytest.mark.case("A2c.01")
async def test_twenty_parallel_completions_of_one_upload_queue_one_job(
    hire: Hire, owner_connection: Connection
) -> None:
    member = await hire()
    requested = (await member.request_upload()).json()["data"]
    answers = await asyncio.gather(*(member.complete(requested["upload"]["id"]) for _ in range(20)))
    assert [answer.status_code for answer in answers] == [202] * 20
    assert len({answer.content for answer in answers}) == 1
    jobs = await owner_connection.fetchval(
        "SELECT count(*) FROM assets.processing_jobs WHERE organization_id = $1", member.person.organization_id
    )
    assert jobs == 1


@pytest.mark.case("A2c.02")
async def test_an_expired_upload_is_not_completed_and_its_replay_has_no_form(
    hire: Hire, owner_connection: Connection
) -> None:
    member, key = await hire(), uuid.uuid4()
    requested = (await member.request_upload(key)).json()["data"]
    await owner_connection.execute(
        "UPDATE assets.uploads SET expires_at = now() - interval '1 second', created_at = now() - interval '1 hour' "
        "WHERE id = $1",
        uuid.UUID(requested["upload"]["id"]),
    )
    response = await member.complete(requested["upload"]["id"])
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "assets.upload_expired"
    assert (await member.read(requested["asset"]["id"])).json()["data"]["status"] == "pending"
    assert (await member.request_upload(key)).json()["data"]["upload"] is None


@pytest.mark.case("A2c.03")
async def test_a_photo_goes_from_intent_through_the_storage_to_processing(
    hire: Hire, stack: Stack, owner_connection: Connection
) -> None:
    member = await hire()
    data = b"\xff\xd8" + b"x" * 5_000
    asset_id = await member.send(data, displayName="Hamburguesa")
    asset = (await member.read(asset_id)).json()["data"]
    assert (asset["status"], asset["displayName"]) == ("processing", "Hamburguesa")
    job = await owner_connection.fetchrow(
        "SELECT job_kind, state, attempt_count FROM assets.processing_jobs WHERE asset_id = $1", uuid.UUID(asset_id)
    )
    assert tuple(job) == ("process_upload", "pending", 0)


async def test_the_trace_of_a_completion_reaches_the_job(hire: Hire, owner_connection: Connection) -> None:
    member = await hire()
    requested = (await member.request_upload()).json()["data"]
    trace_id = uuid.uuid4().hex
    await member.http.post(
        f"{member.gateway_url}/api/v1/assets/uploads/{requested['upload']['id']}/completion",
        headers=member.headers | {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"},
    )
    kept = await owner_connection.fetchval(
        "SELECT trace_context FROM assets.processing_jobs WHERE asset_id = $1", uuid.UUID(requested["asset"]["id"])
    )
    assert kept.split("-")[1] == trace_id


async def test_a_name_with_control_or_direction_characters_is_refused_and_a_file_name_cleaned(hire: Hire) -> None:
    member = await hire()
    response = await member.request_upload(displayName="abc\u202egpj.exe")
    assert response.status_code == 400
    assert response.json()["error"]["meta"]["fields"][0]["field"] == "displayName"
    assert "\u202e" not in response.text
    requested = await member.request_upload(originalFilename="a\u202e\x07b.jpg")
    asset = await member.read(requested.json()["data"]["asset"]["id"])
    assert asset.json()["data"]["originalFilename"] == "ab.jpg"


def _binds(conditions: list[Any], name: str, value: str) -> bool:
    return {name: value} in conditions or ["eq", f"${name}", value] in conditions
