"""What other services are told of assets, and which services are told."""

import uuid
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ninaku.assets.v1 import resources_pb2 as assets_pb
from ninaku.delivery.v1 import asset_delivery_pb2 as pb

from libs.assets.asset import AccessClass
from libs.tenancy.service_tokens import ServiceTokenIssuer
from services.admission.use_cases import PolicySigner
from tests.service.processes import Services, as_person, give_asset, process, refused, running_services, upload_request
from tests.support.database import Connection, DatabaseUnderTest, Person, add_person


def as_catalog(services: Services, person: Person, audience: str = "delivery") -> tuple[tuple[str, str], ...]:
    token = services.issuer.issue(audience, person.organization_id, person.membership_id)
    return (("authorization", f"Bearer {token}"),)


def asking(*asset_ids: object, renditions: tuple[str, ...] = ()) -> pb.DescribeRequest:
    return pb.DescribeRequest(asset_ids=[str(one) for one in asset_ids], renditions=renditions)


async def test_a_ready_public_asset_is_described_with_its_reference_its_size_and_the_urls_asked_for(
    services: Services, owner: Connection, database: DatabaseUnderTest, person: Person
) -> None:
    asset_id, _ = await give_asset(services, person)
    await process(await database.login("ninaku_processing_worker"))
    token = await owner.fetchval("SELECT delivery_token FROM assets.assets")

    answer = await services.delivery.Describe(
        asking(asset_id, renditions=("tile",)), metadata=as_catalog(services, person)
    )

    assert list(answer.assets) == [
        pb.AssetDescription(
            asset_id=str(asset_id),
            status=assets_pb.ASSET_STATUS_READY,
            image_ref=token,
            renditions=[
                assets_pb.Rendition(name="tile", url=f"https://media.example.com/a/{token}/p1/tile.webp"),
            ],
            width=1_600,
            height=1_200,
        )
    ]
    everything = await services.delivery.Describe(asking(asset_id), metadata=as_catalog(services, person))
    assert [rendition.name for rendition in everything.assets[0].renditions] == ["thumbnail", "tile", "card", "detail"]


async def test_assets_come_in_the_order_named_once_each_without_foreign_unknown_and_malformed_ones(
    services: Services, person: Person, stranger: Person
) -> None:
    first, _ = await give_asset(services, person)
    second, _ = await give_asset(services, person)
    foreign, _ = await give_asset(services, stranger)

    answer = await services.delivery.Describe(
        asking(second, foreign, "nonsense", first, uuid.uuid4(), second), metadata=as_catalog(services, person)
    )

    assert [one.asset_id for one in answer.assets] == [str(second), str(first)]


async def test_an_asset_that_is_not_shown_publicly_has_neither_reference_nor_urls(
    database: DatabaseUnderTest, policy_signer: PolicySigner, person: Person
) -> None:
    async with running_services(database, policy_signer, data_policy_published=True) as services:
        private, _ = await give_asset(services, person, AccessClass.PRIVATE)
        await process(await database.login("ninaku_processing_worker"))
        processing, _ = await give_asset(services, person)

        answer = await services.delivery.Describe(asking(private, processing), metadata=as_catalog(services, person))

    assert [one.status for one in answer.assets] == [
        assets_pb.ASSET_STATUS_READY,
        assets_pb.ASSET_STATUS_PROCESSING,
    ]
    for one in answer.assets:
        assert not one.HasField("image_ref")
        assert not any(rendition.HasField("url") for rendition in one.renditions)


async def test_an_archived_asset_is_described_as_archived_and_still_has_its_urls(
    services: Services, owner: Connection, database: DatabaseUnderTest, person: Person
) -> None:
    asset_id, _ = await give_asset(services, person)
    await process(await database.login("ninaku_processing_worker"))
    await owner.execute("UPDATE assets.assets SET archived_at = now()")

    (one,) = (await services.delivery.Describe(asking(asset_id), metadata=as_catalog(services, person))).assets

    assert one.archived
    assert all(rendition.url for rendition in one.renditions)


async def test_a_cashiers_till_is_told_too(services: Services, owner: Connection, person: Person) -> None:
    asset_id, _ = await give_asset(services, person)
    cashier = await add_person(owner, person.organization_id, "cashier")

    answer = await services.delivery.Describe(asking(asset_id), metadata=as_catalog(services, cashier))

    assert len(answer.assets) == 1


async def test_a_membership_that_ended_or_is_of_another_organization_is_no_context(
    services: Services, owner: Connection, person: Person, stranger: Person
) -> None:
    token = services.issuer.issue("delivery", stranger.organization_id, person.membership_id)
    crossed = await refused(
        services.delivery.Describe(asking(uuid.uuid4()), metadata=(("authorization", f"Bearer {token}"),))
    )
    assert crossed.code == "tenant.context_rejected"

    await owner.execute("SELECT identity.end_membership($1)", person.membership_id)
    ended = await refused(services.delivery.Describe(asking(uuid.uuid4()), metadata=as_catalog(services, person)))
    assert ended.code == "tenant.context_rejected"


@pytest.mark.parametrize("method", ["Describe", "GetDeliveryTemplate"])
@pytest.mark.parametrize("who", ["nobody", "a person", "another audience", "an unknown key", "a forged name"])
async def test_only_known_services_with_a_token_for_delivery_are_answered(
    services: Services, person: Person, who: str, method: str
) -> None:
    request: Any = asking(uuid.uuid4()) if method == "Describe" else pb.GetDeliveryTemplateRequest()
    stranger_key = Ed25519PrivateKey.generate()

    def forged(key_id: str) -> tuple[tuple[str, str], ...]:
        token = ServiceTokenIssuer(key_id, stranger_key).issue("delivery", person.organization_id, person.membership_id)
        return (("authorization", f"Bearer {token}"),)

    metadata: tuple[tuple[str, str], ...] = {
        "nobody": (),
        "a person": as_person(person),
        "another audience": as_catalog(services, person, "admission"),
        "an unknown key": forged("catalog-2"),
        "a forged name": forged("catalog-1"),
    }[who]

    refusal = await refused(getattr(services.delivery, method)(request, metadata=metadata))

    assert refusal.code == "identity.unauthenticated"
    assert services.statements["delivery"].sent == []


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.DescribeRequest(), "asset_ids"),
        (pb.DescribeRequest(asset_ids=["x"] * 2_001), "asset_ids"),
        (pb.DescribeRequest(asset_ids=["x"], renditions=["original"]), "renditions"),
    ],
)
async def test_a_request_out_of_bounds_is_invalid(
    services: Services, person: Person, request_: pb.DescribeRequest, field: str
) -> None:
    refusal = await refused(services.delivery.Describe(request_, metadata=as_catalog(services, person)))

    assert refusal.code == "foundation.validation_failed"
    assert [violation.field for violation in refusal.violations] == [field]


async def test_two_thousand_assets_are_described_in_one_statement(
    services: Services, owner: Connection, person: Person
) -> None:
    await owner.execute(
        "INSERT INTO assets.assets (id, organization_id, access_class, delivery_token, created_by_membership_id)"
        " SELECT uuidv7(), $1, 'public', translate(substr(md5(n::text), 1, 26), '0189', 'abcd'), $2"
        " FROM generate_series(1, 2000) n",
        person.organization_id,
        person.membership_id,
    )
    asset_ids = [row["id"] for row in await owner.fetch("SELECT id FROM assets.assets ORDER BY delivery_token")]
    sent = services.statements["delivery"].sent
    await services.delivery.Describe(asking(*asset_ids), metadata=as_catalog(services, person))  # connects, prepares
    sent.clear()

    answer = await services.delivery.Describe(asking(*asset_ids), metadata=as_catalog(services, person))

    assert [one.asset_id for one in answer.assets] == [str(asset_id) for asset_id in asset_ids]
    assert len(sent) == 1


async def test_the_template_and_its_fingerprint_are_told(services: Services, person: Person) -> None:
    answer = await services.delivery.GetDeliveryTemplate(
        pb.GetDeliveryTemplateRequest(), metadata=as_catalog(services, person)
    )

    assert answer.tile_url_template == "https://media.example.com/a/{imageRef}/p1/tile.webp"
    assert len(answer.fingerprint) == 8


async def test_a_pending_asset_is_described_without_size(services: Services, person: Person) -> None:
    requested = await services.admission.RequestUpload(upload_request(), metadata=as_person(person))

    (one,) = (
        await services.delivery.Describe(asking(requested.asset.id), metadata=as_catalog(services, person))
    ).assets

    assert one.status == assets_pb.ASSET_STATUS_PENDING
    assert not one.HasField("width")
