"""Completing an upload: one job, safe to repeat, and object storage is never asked."""

import ast
import asyncio
import socket
import uuid
from pathlib import Path

import pytest
from ninaku.admission.v1 import admission_pb2
from ninaku.assets.v1 import resources_pb2 as assets_pb
from ninaku.library.v1 import library_pb2

import services.admission
from libs.assets.entity_tag import entity_tag
from libs.assets.messages import asset_document
from services.admission.use_cases import PolicySigner
from tests.service.processes import (
    Services,
    as_person,
    count,
    give_asset,
    process,
    refused,
    running_services,
    upload_request,
)
from tests.support.database import Connection, DatabaseUnderTest, Person, add_person

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def open_upload(services: Services, person: Person) -> tuple[str, str]:
    answer = await services.admission.RequestUpload(upload_request(), metadata=as_person(person))
    return answer.asset.id, answer.upload.id


def completion(upload_id: str) -> admission_pb2.CompleteUploadRequest:
    return admission_pb2.CompleteUploadRequest(upload_id=upload_id)


@pytest.mark.case("A2c.01")
async def test_a_completed_upload_is_processing_with_one_queued_job_that_carries_the_trace(
    services: Services, owner: Connection, person: Person
) -> None:
    asset_id, upload_id = await open_upload(services, person)

    answer = await services.admission.CompleteUpload(
        completion(upload_id), metadata=(*as_person(person), ("traceparent", TRACEPARENT))
    )

    assert answer.asset.id == asset_id
    assert answer.asset.status == assets_pb.ASSET_STATUS_PROCESSING
    assert answer.etag == entity_tag(asset_document(answer.asset))
    (job,) = await owner.fetch("SELECT * FROM assets.processing_jobs")
    assert (str(job["asset_id"]), job["job_kind"], job["state"]) == (asset_id, "process_upload", "pending")
    assert job["trace_context"] == TRACEPARENT
    assert await owner.fetchval("SELECT state FROM assets.uploads") == "received"


@pytest.mark.case("A2c.01")
async def test_a_repeat_answers_the_asset_as_it_is_now_and_writes_nothing(
    services: Services, owner: Connection, database: DatabaseUnderTest, person: Person
) -> None:
    _, upload_id = await open_upload(services, person)
    await services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person))
    received_at = await owner.fetchval("SELECT received_at FROM assets.uploads")

    again = await services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person))
    assert again.asset.status == assets_pb.ASSET_STATUS_PROCESSING
    await process(await database.login("ninaku_processing_worker"))
    ready = await services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person))

    assert ready.asset.status == assets_pb.ASSET_STATUS_READY
    assert await count(owner, "assets.processing_jobs") == 1
    assert await owner.fetchval("SELECT received_at FROM assets.uploads") == received_at
    read = await services.library.GetAsset(
        library_pb2.GetAssetRequest(asset_id=ready.asset.id), metadata=as_person(person)
    )
    assert (read.asset, read.etag) == (ready.asset, ready.etag)


@pytest.mark.case("A2c.01")
async def test_twenty_parallel_completions_queue_one_job(services: Services, owner: Connection, person: Person) -> None:
    _, upload_id = await open_upload(services, person)

    answers = await asyncio.gather(
        *(services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person)) for _ in range(20))
    )

    assert {answer.asset.status for answer in answers} == {assets_pb.ASSET_STATUS_PROCESSING}
    assert await count(owner, "assets.processing_jobs") == 1


@pytest.mark.case("A2c.02")
async def test_an_expired_upload_is_refused_whether_or_not_the_sweep_has_seen_it(
    services: Services, owner: Connection, database: DatabaseUnderTest, person: Person
) -> None:
    _, upload_id = await open_upload(services, person)
    await owner.execute(
        "UPDATE assets.uploads SET created_at = now() - interval '1 hour', expires_at = now() - interval '1 second'"
    )
    refusal = await refused(services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person)))
    assert refusal.code == "assets.upload_expired"

    worker = await database.login("ninaku_processing_worker")
    await worker.fetch("SELECT * FROM assets.expire_uploads(10, '{}')")
    refusal = await refused(services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person)))
    assert refusal.code == "assets.upload_expired"
    assert await count(owner, "assets.processing_jobs") == 0


@pytest.mark.case("A2c.02")
async def test_a_rejected_upload_is_refused(services: Services, database: DatabaseUnderTest, person: Person) -> None:
    _, upload_id = await give_asset(services, person)
    await process(
        await database.login("ninaku_processing_worker"),
        outcome="failed_permanent",
        error_code="assets.content_mismatch",
    )

    refusal = await refused(services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person)))

    assert refusal.code == "assets.upload_rejected"


@pytest.mark.case("A2c.02")
@pytest.mark.parametrize("which", ["foreign", "unknown", "malformed", "empty", "an asset's"])
async def test_foreign_unknown_and_malformed_uploads_are_answered_alike(
    services: Services, owner: Connection, person: Person, stranger: Person, which: str
) -> None:
    asset_id, foreign = await open_upload(services, stranger)
    upload_id = {
        "foreign": foreign,
        "unknown": str(uuid.uuid4()),
        "malformed": "../../etc",
        "empty": "",
        "an asset's": asset_id,
    }[which]

    refusal = await refused(services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person)))

    assert (refusal.code, dict(refusal.meta), refusal.violations) == ("assets.not_found", {}, ())
    assert await owner.fetchval("SELECT state FROM assets.uploads") == "issued"


async def test_completing_needs_the_permission_and_never_the_capability(
    services: Services, owner: Connection, person: Person
) -> None:
    _, upload_id = await open_upload(services, person)
    cashier = await add_person(owner, person.organization_id, "cashier")
    for one in (upload_id, "malformed"):
        refusal = await refused(services.admission.CompleteUpload(completion(one), metadata=as_person(cashier)))
        assert refusal.code == "assets.action_forbidden"
    rows = await owner.fetch("SELECT action_code FROM audit.records WHERE outcome = 'denied'")
    assert [row["action_code"] for row in rows] == ["assets.asset.upload_completed"] * 2

    await owner.execute("SELECT platform.end_subscription($1, now() - interval '1 second')", person.organization_id)
    answer = await services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person))
    assert answer.asset.status == assets_pb.ASSET_STATUS_PROCESSING


@pytest.mark.case("A2c.04")
async def test_completing_opens_no_connection_but_the_databases_and_signs_nothing(
    database: DatabaseUnderTest, policy_signer: PolicySigner, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_services(database, policy_signer) as services:
        _, upload_id = await open_upload(services, person)
        assert services.signer is not None
        services.signer.asked.clear()
        reached: list[object] = []
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patch:
            for name in ("create_connection", "sock_connect"):
                patch.setattr(loop, name, lambda *args, **_: reached.append(args), raising=False)
            patch.setattr(socket.socket, "connect", lambda *args: reached.append(args))
            answer = await services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person))

        assert answer.asset.status == assets_pb.ASSET_STATUS_PROCESSING
        assert services.signer.asked == []
        assert reached == []

    # And with storage gone from the configuration altogether it completes just the same.
    async with running_services(database, None) as services:
        again = await services.admission.CompleteUpload(completion(upload_id), metadata=as_person(person))
        assert again.asset.status == assets_pb.ASSET_STATUS_PROCESSING


@pytest.mark.case("A2c.04")
def test_the_completion_has_no_storage_in_its_hands() -> None:
    source = (Path(services.admission.__file__).parent / "use_cases.py").read_text(encoding="utf-8")
    (function,) = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "complete_upload"
    ]
    used = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}

    assert not used & {"signer", "head", "sign", "read_at_most"}


@pytest.mark.case("A2c.05")
async def test_a_completion_takes_five_statements_of_the_eight_it_may(services: Services, person: Person) -> None:
    _, first = await open_upload(services, person)
    _, second = await open_upload(services, person)
    await services.admission.CompleteUpload(completion(first), metadata=as_person(person))
    sent = services.statements["admission"].sent
    sent.clear()

    await services.admission.CompleteUpload(completion(second), metadata=as_person(person))

    assert sent[0].startswith("BEGIN")
    assert sent[-1] == "COMMIT"
    assert len(sent) == 5 <= 8
