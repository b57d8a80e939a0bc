"""Requesting an upload: what is reserved, signed, recorded, and refused."""

import asyncio
import base64
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from ninaku.admission.v1 import admission_pb2
from ninaku.assets.v1 import resources_pb2 as assets_pb

from libs.assets.tokens import is_delivery_token
from libs.assets.uuid7 import uuid7
from services.admission.use_cases import PolicySigner
from tests.service.processes import Services, as_person, count, process, refused, running_services, upload_request
from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization, add_person

WRITTEN = ("assets.assets", "assets.uploads", "assets.asset_variants", "assets.processing_jobs", "audit.records")


async def usage(owner: Connection, person: Person) -> tuple[int, int, int]:
    """Active assets, stored bytes, reserved bytes of the person's organization."""
    row = await owner.fetchrow(
        "SELECT active_asset_count, stored_bytes, reserved_bytes FROM assets.organization_usage"
        " WHERE organization_id = $1",
        person.organization_id,
    )
    return row["active_asset_count"], row["stored_bytes"], row["reserved_bytes"]


async def nothing_written(owner: Connection, person: Person) -> bool:
    return await usage(owner, person) == (0, 0, 0) and [await count(owner, table) for table in WRITTEN] == [0] * 5


def policy_of(upload: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(base64.b64decode(upload.fields["policy"]))
    return decoded


@pytest.mark.case("A2b.01")
async def test_a_request_reserves_quota_for_a_pending_asset_and_signs_exactly_what_was_declared(
    services: Services, owner: Connection, person: Person
) -> None:
    before = datetime.now(UTC)
    answer = await services.admission.RequestUpload(
        upload_request(display_name=" Hamburguesa cla\u0301sica ", original_filename="IMG\u202e_1.jpg"),
        metadata=(*as_person(person), ("x-request-id", "till-7")),
    )

    asset, upload = answer.asset, answer.upload
    assert not answer.replayed
    assert asset.status == assets_pb.ASSET_STATUS_PENDING
    assert asset.access_class == assets_pb.ACCESS_CLASS_PUBLIC
    assert (asset.display_name, asset.original_filename) == ("Hamburguesa clásica", "IMG_1.jpg")
    assert [(rendition.name, rendition.HasField("url")) for rendition in asset.renditions] == [
        ("thumbnail", False),
        ("tile", False),
        ("card", False),
        ("detail", False),
    ]
    assert {uuid.UUID(asset.id).version, uuid.UUID(upload.id).version} == {7}

    policy = policy_of(upload)
    key = upload.fields["key"]
    assert key.startswith("in/")
    assert is_delivery_token(key.removeprefix("in/"))
    assert upload.fields["Content-Type"] == "image/jpeg"
    assert ["content-length-range", 1, 2_483_211] in policy["conditions"]
    assert ["eq", "$key", key] in policy["conditions"] or {"key": key} in policy["conditions"]
    assert {"bucket": "ninaku-test-assets"} in policy["conditions"]
    assert upload.max_bytes == 2_483_211
    lifetime = upload.expires_at.ToDatetime(UTC) - before
    assert timedelta(seconds=595) <= lifetime <= timedelta(seconds=630)

    row = await owner.fetchrow("SELECT * FROM assets.uploads")
    assert str(row["id"]) == upload.id
    assert row["staging_object_key"] == key
    assert (row["declared_media_type"], row["declared_byte_size"], row["state"]) == ("image/jpeg", 2_483_211, "issued")
    assert timedelta(minutes=14) < row["expires_at"] - before < timedelta(minutes=16)
    assert await usage(owner, person) == (1, 0, 2_483_211)

    records = await owner.fetch("SELECT * FROM audit.records")
    assert [(r["action_code"], r["outcome"], str(r["resource_id"])) for r in records] == [
        ("assets.asset.upload_requested", "succeeded", asset.id)
    ]
    assert records[0]["actor_id"] == person.actor_id
    assert (records[0]["service"], records[0]["request_id"]) == ("admission", "till-7")
    assert json.loads(records[0]["after_attributes"]) == {
        "mediaType": "image/jpeg",
        "byteSize": 2_483_211,
        "accessClass": "public",
    }
    assert upload.fields["x-amz-signature"] not in str(records)


@pytest.mark.case("A2b.02")
async def test_the_same_key_and_content_answer_the_same_asset_with_a_fresh_form(
    services: Services, owner: Connection, person: Person
) -> None:
    request = upload_request(display_name="Pizza")
    first = await services.admission.RequestUpload(request, metadata=as_person(person))
    services.clock.ahead = lambda now: now + timedelta(minutes=10)
    again = await services.admission.RequestUpload(request, metadata=as_person(person))

    assert again.replayed
    assert again.asset == first.asset
    assert again.upload.id == first.upload.id
    assert again.upload.fields["key"] == first.upload.fields["key"]
    assert await count(owner, "assets.assets") == 1
    assert await count(owner, "audit.records") == 1
    assert await usage(owner, person) == (1, 0, 2_483_211)
    # Ten minutes for the first; of the fifteen of the upload, five were left for the second.
    assert services.signer is not None
    (_, _, _, first_seconds), (_, _, _, second_seconds) = services.signer.asked
    assert first_seconds == 600
    assert 290 <= second_seconds <= 300


@pytest.mark.case("A2b.02")
@pytest.mark.parametrize(
    "changes",
    [
        {"byte_size": 2_483_212},
        {"media_type": "image/png"},
        {"display_name": "Another"},
        {"original_filename": "another.jpg"},
    ],
)
async def test_the_same_key_with_other_content_is_refused_and_changes_nothing(
    services: Services, owner: Connection, person: Person, changes: dict[str, Any]
) -> None:
    key = str(uuid.uuid4())
    await services.admission.RequestUpload(upload_request(idempotency_key=key), metadata=as_person(person))

    refusal = await refused(
        services.admission.RequestUpload(upload_request(idempotency_key=key, **changes), metadata=as_person(person))
    )

    assert refusal.code == "idempotency.key_reused"
    assert await count(owner, "assets.uploads") == 1
    assert await usage(owner, person) == (1, 0, 2_483_211)


@pytest.mark.case("A2b.02")
async def test_a_replay_shows_the_asset_as_it_is_now_and_no_form_once_the_upload_was_received(
    services: Services, database: DatabaseUnderTest, person: Person
) -> None:
    request = upload_request()
    first = await services.admission.RequestUpload(request, metadata=as_person(person))
    await services.admission.CompleteUpload(
        admission_pb2.CompleteUploadRequest(upload_id=first.upload.id), metadata=as_person(person)
    )
    received = await services.admission.RequestUpload(request, metadata=as_person(person))
    assert received.replayed
    assert received.asset.status == assets_pb.ASSET_STATUS_PROCESSING
    assert not received.HasField("upload")

    await process(await database.login("ninaku_processing_worker"))
    ready = await services.admission.RequestUpload(request, metadata=as_person(person))
    assert ready.replayed
    assert ready.asset.status == assets_pb.ASSET_STATUS_READY
    assert ready.asset.width == 1_600
    assert all(rendition.url.startswith("https://media.example.com/a/") for rendition in ready.asset.renditions)
    assert not ready.HasField("upload")


@pytest.mark.case("A2b.02")
async def test_a_replay_after_the_upload_expired_has_no_form(
    services: Services, owner: Connection, person: Person
) -> None:
    request = upload_request()
    await services.admission.RequestUpload(request, metadata=as_person(person))
    services.clock.ahead = lambda now: now + timedelta(minutes=15, seconds=1)

    again = await services.admission.RequestUpload(request, metadata=as_person(person))

    assert again.replayed
    assert not again.HasField("upload")


@pytest.mark.case("A2b.02")
async def test_the_same_key_of_another_organization_is_another_request(
    services: Services, owner: Connection, person: Person, stranger: Person
) -> None:
    request = upload_request()
    mine = await services.admission.RequestUpload(request, metadata=as_person(person))
    theirs = await services.admission.RequestUpload(request, metadata=as_person(stranger))

    assert not theirs.replayed
    assert mine.asset.id != theirs.asset.id


@pytest.mark.case("A2b.02")
async def test_while_another_transaction_holds_the_key_the_answer_is_in_progress(
    services: Services, owner: Connection, person: Person
) -> None:
    key = uuid.uuid4()
    lock = f"assets.uploads:{person.organization_id}:{key}"
    async with owner.transaction():
        await owner.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", lock)
        refusal = await refused(
            services.admission.RequestUpload(upload_request(idempotency_key=str(key)), metadata=as_person(person))
        )
        assert refusal.code == "idempotency.in_progress"

    answer = await services.admission.RequestUpload(
        upload_request(idempotency_key=str(key)), metadata=as_person(person)
    )
    assert not answer.replayed


@pytest.mark.case("A2b.02")
async def test_twenty_parallel_requests_with_one_key_make_one_asset(
    services: Services, owner: Connection, person: Person
) -> None:
    request = upload_request()

    async def ask() -> str:
        try:
            return str((await services.admission.RequestUpload(request, metadata=as_person(person))).asset.id)
        except Exception as error:
            refusal = await refused(_again(error))
            assert refusal.code == "idempotency.in_progress"
            return ""

    answers = await asyncio.gather(*(ask() for _ in range(20)))

    assert len(set(answers) - {""}) == 1
    assert await count(owner, "assets.assets") == 1
    assert await usage(owner, person) == (1, 0, 2_483_211)


async def _again(error: Exception) -> None:
    raise error


@pytest.mark.case("A2b.03")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"media_type": "image/svg+xml"}, "assets.media_type_unsupported"),
        ({"media_type": "image/heic"}, "assets.media_type_unsupported"),
        ({"media_type": "application/x-thing"}, "assets.media_type_unsupported"),
        ({"byte_size": 10_485_761}, "assets.file_too_large"),
        ({"access_class": assets_pb.ACCESS_CLASS_PRIVATE}, "assets.access_class_unavailable"),
        ({"access_class": assets_pb.ACCESS_CLASS_SENSITIVE}, "assets.access_class_unavailable"),
        ({"access_class": assets_pb.ACCESS_CLASS_UNSPECIFIED}, "foundation.validation_failed"),
        ({"access_class": 77}, "foundation.validation_failed"),
        ({"byte_size": 0}, "foundation.validation_failed"),
        ({"idempotency_key": "mine"}, "foundation.validation_failed"),
        ({"display_name": "a\u202eb"}, "foundation.validation_failed"),
    ],
)
async def test_what_cannot_be_uploaded_is_refused_before_anything_is_written_or_asked(
    services: Services, owner: Connection, person: Person, changes: dict[str, Any], code: str
) -> None:
    refusal = await refused(services.admission.RequestUpload(upload_request(**changes), metadata=as_person(person)))

    assert refusal.code == code
    assert services.statements["admission"].sent == []
    assert await nothing_written(owner, person)


@pytest.mark.case("A2b.03")
async def test_private_files_are_admitted_once_the_data_policy_is_published(
    database: DatabaseUnderTest, policy_signer: PolicySigner, owner: Connection, person: Person
) -> None:
    async with running_services(database, policy_signer, data_policy_published=True) as services:
        answer = await services.admission.RequestUpload(
            upload_request(access_class=assets_pb.ACCESS_CLASS_PRIVATE), metadata=as_person(person)
        )

    assert answer.asset.access_class == assets_pb.ACCESS_CLASS_PRIVATE


async def limited(owner: Connection, code: str, value: int) -> Person:
    """The owner of an organization on a plan version with that limit."""
    await owner.fetchval(
        "SELECT platform.publish_plan_version('pionero', '{}', ARRAY[$1::varchar], ARRAY[$2::bigint])", code, value
    )
    return await add_person(owner, await add_organization(owner, "Limitada"))


@pytest.mark.case("A2b.04")
@pytest.mark.parametrize(
    ("limit", "value", "sizes", "code"),
    [
        ("assets.active_assets", 1, (1,), "assets.asset_limit_reached"),
        ("assets.stored_megabytes", 10, (10_485_760,), "assets.storage_limit_reached"),
        ("assets.stored_megabytes", 0, (), "assets.storage_limit_reached"),
    ],
)
async def test_a_reached_limit_of_the_plan_refuses_the_next_upload_and_counts_open_reservations(
    services: Services, owner: Connection, limit: str, value: int, sizes: tuple[int, ...], code: str
) -> None:
    person = await limited(owner, limit, value)
    for size in sizes:
        await services.admission.RequestUpload(upload_request(byte_size=size), metadata=as_person(person))
    before = await usage(owner, person)

    refusal = await refused(services.admission.RequestUpload(upload_request(byte_size=1), metadata=as_person(person)))

    assert refusal.code == code
    assert await usage(owner, person) == before
    assert await count(owner, "assets.uploads") == len(sizes)


@pytest.mark.case("A2b.04")
async def test_two_concurrent_requests_at_the_limit_admit_exactly_one(services: Services, owner: Connection) -> None:
    person = await limited(owner, "assets.active_assets", 1)

    async def ask() -> str:
        try:
            await services.admission.RequestUpload(upload_request(), metadata=as_person(person))
        except Exception as error:
            return (await refused(_again(error))).code
        return "admitted"

    assert sorted(await asyncio.gather(ask(), ask())) == ["admitted", "assets.asset_limit_reached"]
    assert await usage(owner, person) == (1, 0, 2_483_211)


@pytest.mark.case("A2b.05")
async def test_an_organization_has_at_most_twenty_open_uploads(
    services: Services, owner: Connection, person: Person
) -> None:
    requests = [upload_request(byte_size=100) for _ in range(20)]
    opened = [await services.admission.RequestUpload(one, metadata=as_person(person)) for one in requests]

    refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=as_person(person)))
    assert refusal.code == "assets.too_many_open_uploads"
    assert await count(owner, "assets.uploads") == 20

    # A repeat is not a twenty-first; one that ends makes room.
    assert (await services.admission.RequestUpload(requests[3], metadata=as_person(person))).replayed
    await owner.execute(
        "UPDATE assets.uploads SET state = 'expired', settled_at = now() WHERE id = $1", opened[0].upload.id
    )
    assert (await services.admission.RequestUpload(upload_request(), metadata=as_person(person))).upload.id


@pytest.mark.case("A2b.06")
async def test_without_storage_the_answer_is_unavailable_before_the_caller_is_even_looked_at(
    database: DatabaseUnderTest, owner: Connection, person: Person
) -> None:
    async with running_services(database, None) as services:
        for metadata in ((), as_person(person)):
            refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=metadata))
            assert refusal.code == "assets.storage_unavailable"
            assert refusal.entry.http_status == 503
        assert services.statements["admission"].sent == []

    assert await nothing_written(owner, person)


async def denied(owner: Connection) -> list[tuple[str, str, str | None, Any]]:
    return [
        (row["action_code"], row["authorization_decision"], row["permission_code"], row["actor_id"])
        for row in await owner.fetch("SELECT * FROM audit.records WHERE outcome = 'denied' ORDER BY id")
    ]


@pytest.mark.case("A2b.07")
@pytest.mark.parametrize(
    ("role", "unit"), [("cashier", None), ("waiter", None), ("manager", "Terraza"), ("organization_owner", "Terraza")]
)
async def test_who_may_not_manage_media_is_refused_and_the_denial_is_recorded(
    services: Services, owner: Connection, person: Person, role: str, unit: str | None
) -> None:
    other = await add_person(owner, person.organization_id, role, unit)

    refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=as_person(other)))

    assert refusal.code == "assets.action_forbidden"
    assert await count(owner, "assets.assets") == 0
    assert await denied(owner) == [
        ("assets.asset.upload_requested", "forbidden", "assets.media.manage", other.actor_id)
    ]


@pytest.mark.case("A2b.07")
async def test_an_organization_wide_manager_may(services: Services, owner: Connection, person: Person) -> None:
    manager = await add_person(owner, person.organization_id, "manager")

    assert (await services.admission.RequestUpload(upload_request(), metadata=as_person(manager))).upload.id


@pytest.mark.case("A2b.07")
async def test_a_lapsed_plan_and_one_without_the_capability_are_refused_by_the_capability(
    services: Services, owner: Connection, person: Person
) -> None:
    await owner.execute("SELECT platform.end_subscription($1, now() - interval '1 second')", person.organization_id)
    refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=as_person(person)))
    assert refusal.code == "platform.capability_not_entitled"
    assert await denied(owner) == [
        ("assets.asset.upload_requested", "not_entitled", "assets.media.manage", person.actor_id)
    ]

    without = await add_person(owner, await add_organization(owner, "Sin plan", None))
    refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=as_person(without)))
    assert refusal.code == "platform.capability_not_entitled"


@pytest.mark.case("A2b.07")
async def test_another_organization_is_no_context_and_its_records_are_not_written_by_outsiders(
    services: Services, owner: Connection, person: Person, stranger: Person
) -> None:
    refusal = await refused(
        services.admission.RequestUpload(upload_request(), metadata=as_person(person, stranger.organization_id))
    )

    assert refusal.code == "tenant.context_rejected"
    assert await owner.fetch("SELECT * FROM audit.records WHERE organization_id = $1", stranger.organization_id) == []
    assert [decision for _, decision, _, _ in await denied(owner)] == ["context_rejected"]


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer unknown-session", "Bearer " + "x" * 300, "Bearer a b"],
)
async def test_without_a_living_session_nobody_is_anybody(
    services: Services, owner: Connection, person: Person, authorization: str | None
) -> None:
    metadata = [("x-organization-id", str(person.organization_id))]
    if authorization is not None:
        metadata.append(("authorization", authorization))

    refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=tuple(metadata)))

    assert refusal.code == "identity.unauthenticated"
    assert await nothing_written(owner, person)


async def test_a_revoked_session_ends_at_once(services: Services, owner: Connection, person: Person) -> None:
    await owner.execute("SELECT identity.revoke_user_sessions($1)", person.email)

    refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=as_person(person)))

    assert refusal.code == "identity.unauthenticated"


async def test_a_denial_that_cannot_be_recorded_is_a_denial_all_the_same(
    services: Services, owner: Connection, person: Person
) -> None:
    cashier = await add_person(owner, person.organization_id, "cashier")
    await owner.execute("ALTER TABLE audit.records ADD CONSTRAINT nothing CHECK (false) NOT VALID")

    refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=as_person(cashier)))

    assert refusal.code == "assets.action_forbidden"


@pytest.mark.case("A2b.05")
async def test_the_thirty_first_request_of_a_minute_is_told_when_to_come_back_and_reserves_nothing(
    database: DatabaseUnderTest, policy_signer: PolicySigner, owner: Connection, person: Person
) -> None:
    other = await add_person(owner, person.organization_id, "manager")
    request = upload_request()
    async with running_services(database, policy_signer, requests_a_minute=30) as services:
        for _ in range(30):
            await services.admission.RequestUpload(request, metadata=as_person(person))
        refusal = await refused(services.admission.RequestUpload(upload_request(), metadata=as_person(person)))
        assert refusal.code == "foundation.rate_limited"
        assert 1 <= int(refusal.meta["retryAfterSeconds"]) <= 60
        assert await count(owner, "assets.uploads") == 1

        assert (await services.admission.RequestUpload(upload_request(), metadata=as_person(other))).upload.id


def is_control(statement: str) -> bool:
    return statement.startswith(("BEGIN", "COMMIT", "ROLLBACK"))


@pytest.mark.case("A2b.11")
async def test_a_request_takes_four_statements_of_the_eight_it_may_and_a_replay_five(
    services: Services, person: Person
) -> None:
    request, sent = upload_request(), services.statements["admission"].sent
    await services.admission.RequestUpload(upload_request(), metadata=as_person(person))  # connects, prepares
    sent.clear()

    await services.admission.RequestUpload(request, metadata=as_person(person))
    assert [statement.split("(")[0].split()[-1] for statement in sent if not is_control(statement)] == [
        "identity.open_tenant_context",
        "assets.reserve_upload",
    ]
    assert len(sent) == 4 <= 8

    sent.clear()
    await services.admission.RequestUpload(request, metadata=as_person(person))
    assert len(sent) == 5 <= 8


async def test_a_request_id_that_is_not_well_formed_is_not_recorded(
    services: Services, owner: Connection, person: Person
) -> None:
    await services.admission.RequestUpload(
        upload_request(idempotency_key=str(uuid7())), metadata=(*as_person(person), ("x-request-id", "a b;c"))
    )

    assert await owner.fetchval("SELECT request_id FROM audit.records") != "a b;c"


@pytest.mark.case("A2b.01")
async def test_neither_the_form_nor_the_session_is_in_a_log(services: Services, person: Person) -> None:
    with structlog.testing.capture_logs() as lines:
        answer = await services.admission.RequestUpload(upload_request(), metadata=as_person(person))
        await refused(services.admission.RequestUpload(upload_request(byte_size=0), metadata=as_person(person)))

    assert [line["event"] for line in lines].count("rpc") >= 1
    written = repr(lines)
    for secret in (answer.upload.fields["policy"], answer.upload.fields["x-amz-signature"], person.token):
        assert secret not in written
