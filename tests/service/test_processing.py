"""What the view of the queue tells, and whom."""

import datetime as dt
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ninaku.processing.v1 import processing_pb2 as pb
from ninaku.processing.v1 import processing_pb2_grpc
from opentelemetry.metrics import NoOpMeter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from libs.database.engine import create_database
from libs.rpc.client import Channel
from libs.rpc.server import RpcServer
from libs.tenancy.service_tokens import ServiceKey, ServiceTokenIssuer, ServiceTokenVerifier
from services.processing.domain import JobKind
from services.processing.queue_gauges import QueueGauges
from services.processing.queue_repository import QueueRepository
from services.processing.servicer import KIND_VALUES, ProcessingServicer
from tests.service.processes import Statements, as_person, refused
from tests.support.database import Connection, DatabaseUnderTest, Person

CALLS = (("GetQueueState", pb.GetQueueStateRequest()), ("ListDeadLetters", pb.ListDeadLettersRequest()))


@dataclass(frozen=True)
class View:
    """The running service."""

    stub: Any
    issuer: ServiceTokenIssuer
    repository: QueueRepository
    statements: Statements

    @property
    def operator(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a service that acts for no organization."""
        return (("authorization", f"Bearer {self.issuer.issue_for_itself('processing')}"),)


@pytest.fixture
async def view(database: DatabaseUnderTest) -> AsyncIterator[View]:
    key = Ed25519PrivateKey.generate()
    pool = create_database(database.dsn("ninaku_processing"), pool_size=4, application_name="ninaku-processing")
    statements = Statements()
    statements.watch(pool)
    repository = QueueRepository(pool)
    server = RpcServer("127.0.0.1", 0, meter=NoOpMeter("test"))
    server.add_service(
        processing_pb2_grpc.add_ProcessingServicer_to_server,
        ProcessingServicer(
            repository, ServiceTokenVerifier("processing", {"ops-1": ServiceKey("dashboard", key.public_key())})
        ),
        pb.DESCRIPTOR.services_by_name["Processing"].full_name,
    )
    port = await server.start()
    channel: Any
    async with Channel(f"127.0.0.1:{port}") as channel:
        yield View(
            processing_pb2_grpc.ProcessingStub(channel), ServiceTokenIssuer("ops-1", key), repository, statements
        )
    await server.stop(drain_seconds=1)
    await pool.close()


async def seed(owner: Connection, person: Person, count: int, kind: str = "process_upload") -> list[uuid.UUID]:
    """Dead letters of uploads of today, the newest first; no two of the same moment but the last two."""
    rows = await owner.fetch(
        """WITH made AS (
            INSERT INTO assets.assets (id, organization_id, access_class, delivery_token, status, failed_at,
                failure_code)
            SELECT uuidv7(), $1, 'public', translate(substr(encode(sha256(uuid_send(gen_random_uuid())), 'hex'), 1, 26),
                '0189', 'wxyz'), 'failed', now(), 'assets.processing_exhausted'
            FROM generate_series(1, $2) RETURNING id),
        uploaded AS (
            INSERT INTO assets.uploads (id, organization_id, asset_id, staging_provider_id, staging_object_key,
                declared_media_type, declared_byte_size, state, received_at, settled_at, rejection_code, expires_at,
                creation_idempotency_key, creation_request_hash)
            SELECT uuidv7(), $1, made.id, p.id,
                'in/' || translate(substr(encode(sha256(uuid_send(made.id)), 'hex'), 1, 26), '0189', 'wxyz'),
                'image/jpeg', 10, 'rejected', now(), now(), 'assets.processing_exhausted', now() + interval '1 minute',
                gen_random_uuid(), repeat('a', 64)
            FROM made, assets.storage_providers p WHERE p.code = 's3-private'),
        numbered AS (SELECT id, row_number() OVER () AS n FROM made)
        INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, state, attempt_count,
            processing_error_count, error_class, last_error_code, updated_at)
        SELECT uuidv7(), $1, id, $3, 'dead_lettered', 7, 5, 'processing', 'assets.processing_error',
            now() - make_interval(secs => greatest(n, 2))
        FROM numbered RETURNING id, updated_at""",
        person.organization_id,
        count,
        kind,
    )
    return [row["id"] for row in sorted(rows, key=lambda row: (row["updated_at"], row["id"]), reverse=True)]


async def test_the_queue_is_told_with_every_kind_and_dead_letters_by_code_in_one_statement(
    view: View, owner: Connection, person: Person
) -> None:
    await seed(owner, person, 3)
    await seed(owner, person, 2, "purge_asset")
    await owner.execute(
        "UPDATE assets.processing_jobs SET state = 'pending', available_at = now() - interval '90 seconds'"
        " WHERE job_kind = 'purge_asset'"
    )
    await view.stub.GetQueueState(pb.GetQueueStateRequest(), metadata=view.operator)  # connects, prepares
    view.statements.sent.clear()

    state = await view.stub.GetQueueState(pb.GetQueueStateRequest(), metadata=view.operator)

    assert len(view.statements.sent) == 1
    assert {depth.kind for depth in state.depths} == set(KIND_VALUES.values())
    uploads, purges, _ = state.depths
    assert (uploads.kind, uploads.ready, uploads.HasField("oldest_ready_age")) == (
        pb.JOB_KIND_PROCESS_UPLOAD, 0, False,
    )  # fmt: skip
    assert (purges.ready, purges.delayed, purges.leased, purges.lease_expired) == (2, 0, 0, 0)
    assert 90 <= purges.oldest_ready_age.ToTimedelta().total_seconds() < 150
    assert list(state.dead_letters) == [
        pb.DeadLetterCount(kind=pb.JOB_KIND_PROCESS_UPLOAD, error_code="assets.processing_error", count=3)
    ]
    assert abs(state.counted_at.ToDatetime(dt.UTC) - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


async def test_dead_letters_come_newest_first_page_by_page_each_once(
    view: View, owner: Connection, person: Person
) -> None:
    expected = await seed(owner, person, 7)
    listed, token, pages = [], "", 0
    while True:
        page = await view.stub.ListDeadLetters(
            pb.ListDeadLettersRequest(page_size=3, page_token=token), metadata=view.operator
        )
        listed += [uuid.UUID(letter.job_id) for letter in page.dead_letters]
        pages, token = pages + 1, page.next_page_token
        if not token:
            break
    assert (listed, pages) == (expected, 3)


async def test_a_dead_letter_tells_its_asset_its_counts_and_whether_another_go_is_possible(
    view: View, owner: Connection, person: Person
) -> None:
    job_id = (await seed(owner, person, 1))[0]
    (letter,) = (await view.stub.ListDeadLetters(pb.ListDeadLettersRequest(), metadata=view.operator)).dead_letters
    assert (letter.job_id, letter.organization_id) == (str(job_id), str(person.organization_id))
    assert letter.asset_id == str(await owner.fetchval("SELECT asset_id FROM assets.processing_jobs"))
    assert (letter.kind, letter.error_code, letter.attempt_count, letter.processing_error_count) == (
        pb.JOB_KIND_PROCESS_UPLOAD, "assets.processing_error", 7, 5,
    )  # fmt: skip
    assert (letter.requeueable, letter.HasField("requeue_refusal")) == (True, False)
    await owner.execute("UPDATE assets.uploads SET created_at = now() - interval '25 hours'")
    (letter,) = (await view.stub.ListDeadLetters(pb.ListDeadLettersRequest(), metadata=view.operator)).dead_letters
    assert (letter.requeueable, letter.requeue_refusal) == (False, "too_old")


async def test_only_one_kind_is_listed_when_it_is_asked_for(view: View, owner: Connection, person: Person) -> None:
    await seed(owner, person, 2)
    expected = await seed(owner, person, 1, "purge_asset")
    page = await view.stub.ListDeadLetters(
        pb.ListDeadLettersRequest(kind=pb.JOB_KIND_PURGE_ASSET), metadata=view.operator
    )
    assert [letter.job_id for letter in page.dead_letters] == [str(job_id) for job_id in expected]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.ListDeadLettersRequest(page_size=501), "page_size"),
        (pb.ListDeadLettersRequest(page_size=-1), "page_size"),
        (pb.ListDeadLettersRequest(page_token="nonsense"), "page_token"),
        (pb.ListDeadLettersRequest(page_token="MjAyNi0wMS0wMQ"), "page_token"),
        (pb.ListDeadLettersRequest(kind=99), "kind"),  # type: ignore[arg-type]
    ],
)
async def test_a_request_out_of_bounds_is_invalid(view: View, request_: pb.ListDeadLettersRequest, field: str) -> None:
    refusal = await refused(view.stub.ListDeadLetters(request_, metadata=view.operator))
    assert refusal.code == "foundation.validation_failed"
    assert [violation.field for violation in refusal.violations] == [field]


@pytest.mark.parametrize(("method", "request_"), CALLS, ids=["state", "dead letters"])
@pytest.mark.parametrize("who", ["nobody", "a person", "another audience", "a forged name", "one organization's"])
async def test_only_services_that_act_for_no_organization_are_answered(
    view: View, person: Person, who: str, method: str, request_: Any
) -> None:
    forged = ServiceTokenIssuer("ops-1", Ed25519PrivateKey.generate()).issue_for_itself("processing")
    scoped = view.issuer.issue("processing", person.organization_id, person.membership_id)
    metadata: tuple[tuple[str, str], ...] = {
        "nobody": (),
        "a person": as_person(person),
        "another audience": (("authorization", f"Bearer {view.issuer.issue_for_itself('delivery')}"),),
        "a forged name": (("authorization", f"Bearer {forged}"),),
        "one organization's": (("authorization", f"Bearer {scoped}"),),
    }[who]
    refusal = await refused(getattr(view.stub, method)(request_, metadata=metadata))
    assert refusal.code == "identity.unauthenticated"
    assert view.statements.sent == []


def test_the_kinds_of_the_proto_are_the_kinds_there_are() -> None:
    assert {pb.JobKind.Name(value).removeprefix("JOB_KIND_").lower() for value in pb.JobKind.values() if value} == {
        kind.value for kind in JobKind
    }
    assert {kind: pb.JobKind.Name(value) for kind, value in KIND_VALUES.items()} == {
        kind: f"JOB_KIND_{kind.name}" for kind in JobKind
    }


async def test_the_gauges_report_what_was_counted_and_nothing_when_it_could_not_be(
    view: View, owner: Connection, person: Person, database: DatabaseUnderTest
) -> None:
    await seed(owner, person, 2)
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    gauges = QueueGauges(view.repository, provider.get_meter("test"))

    def reported() -> dict[tuple[str, ...], float]:
        values: dict[tuple[str, ...], float] = {}
        data = reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint)
                    attributes = (str(value) for _, value in sorted((point.attributes or {}).items()))
                    values[(metric.name, *attributes)] = point.value
        return values

    assert reported() == {}
    await gauges.sample()
    values = reported()
    assert values["assets_queue_dead_letters", "assets.processing_error", "process_upload"] == 2
    assert values["assets_queue_jobs", "purge_asset", "ready"] == 0
    assert values["assets_queue_oldest_seconds", "render_profile"] == 0.0
    assert len([name for name, *_ in values if name == "assets_queue_jobs"]) == 12

    await owner.execute("REVOKE EXECUTE ON FUNCTION assets.queue_state() FROM ninaku_queue_reader")
    await gauges.sample()
    assert reported() == {}
