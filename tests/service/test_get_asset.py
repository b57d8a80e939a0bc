"""Reading an asset: what it shows in each state, its tag, and who may see it."""

import json
import uuid

import pytest
from ninaku.assets.v1 import resources_pb2 as assets_pb
from ninaku.library.v1 import library_pb2

from libs.assets.asset import AccessClass
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


def reading(asset_id: uuid.UUID | str, if_none_match: str = "") -> library_pb2.GetAssetRequest:
    return library_pb2.GetAssetRequest(asset_id=str(asset_id), if_none_match=if_none_match)


@pytest.mark.case("A2b.08")
async def test_a_ready_public_asset_has_the_url_of_every_rendition_and_never_the_masters(
    services: Services, owner: Connection, database: DatabaseUnderTest, person: Person
) -> None:
    asset_id, _ = await give_asset(services, person, display_name="Pizza", original_filename="pizza.jpg")
    await process(await database.login("ninaku_processing_worker"))

    answer = await services.library.GetAsset(reading(asset_id), metadata=as_person(person))

    asset = answer.asset
    token = await owner.fetchval("SELECT delivery_token FROM assets.assets")
    assert {rendition.name: rendition.url for rendition in asset.renditions} == {
        name: f"https://media.example.com/a/{token}/p1/{name}.webp" for name in ("thumbnail", "tile", "card", "detail")
    }
    assert (asset.width, asset.height, asset.byte_size) == (1_600, 1_200, 51_200)
    assert (asset.display_name, asset.original_filename) == ("Pizza", "pizza.jpg")
    assert asset.HasField("ready_at")
    assert not asset.HasField("failure")
    document = json.dumps(asset_document(asset))
    assert "original.webp" not in document
    assert "/m/" not in document
    assert answer.etag == entity_tag(asset_document(asset))
    assert answer.etag.startswith('"')
    assert len(answer.etag) == 66


@pytest.mark.case("A2b.08")
async def test_the_present_tag_is_answered_not_modified_and_an_old_one_with_the_asset(
    services: Services, database: DatabaseUnderTest, person: Person
) -> None:
    asset_id, _ = await give_asset(services, person)
    old = (await services.library.GetAsset(reading(asset_id), metadata=as_person(person))).etag
    await process(await database.login("ninaku_processing_worker"))
    new = await services.library.GetAsset(reading(asset_id, old), metadata=as_person(person))
    assert not new.not_modified
    assert new.etag != old

    for condition in (new.etag, f"W/{new.etag}", f'"other", {new.etag}', "*"):
        same = await services.library.GetAsset(reading(asset_id, condition), metadata=as_person(person))
        assert same.not_modified, condition
        assert same.etag == new.etag
        assert not same.HasField("asset")


@pytest.mark.case("A2b.09")
async def test_a_pending_and_a_processing_asset_have_no_urls(
    services: Services, owner: Connection, person: Person
) -> None:
    requested = await services.admission.RequestUpload(upload_request(), metadata=as_person(person))
    processing, _ = await give_asset(services, person)

    for asset_id, status in (
        (requested.asset.id, assets_pb.ASSET_STATUS_PENDING),
        (processing, assets_pb.ASSET_STATUS_PROCESSING),
    ):
        asset = (await services.library.GetAsset(reading(asset_id), metadata=as_person(person))).asset
        assert asset.status == status
        assert [rendition.name for rendition in asset.renditions] == ["thumbnail", "tile", "card", "detail"]
        assert not any(rendition.HasField("url") for rendition in asset.renditions)
        assert not asset.HasField("width")
        assert not asset.HasField("byte_size")


@pytest.mark.case("A2b.09")
async def test_a_failed_asset_says_why_in_words_and_has_no_urls(
    services: Services, database: DatabaseUnderTest, person: Person
) -> None:
    asset_id, _ = await give_asset(services, person)
    await process(
        await database.login("ninaku_processing_worker"), outcome="failed_permanent", error_code="assets.image_corrupt"
    )

    asset = (await services.library.GetAsset(reading(asset_id), metadata=as_person(person))).asset

    assert asset.status == assets_pb.ASSET_STATUS_FAILED
    assert asset.failure.code == "assets.image_corrupt"
    assert asset.failure.message.endswith(".")
    assert asset.failure.remedy.endswith(".")
    assert not any(rendition.HasField("url") for rendition in asset.renditions)


async def test_a_ready_private_asset_has_no_urls(
    database: DatabaseUnderTest, policy_signer: PolicySigner, person: Person
) -> None:
    async with running_services(database, policy_signer, data_policy_published=True) as services:
        asset_id, _ = await give_asset(services, person, AccessClass.PRIVATE)
        await process(await database.login("ninaku_processing_worker"))

        asset = (await services.library.GetAsset(reading(asset_id), metadata=as_person(person))).asset

    assert asset.status == assets_pb.ASSET_STATUS_READY
    assert not any(rendition.HasField("url") for rendition in asset.renditions)


@pytest.mark.case("A2b.10")
@pytest.mark.parametrize("which", ["foreign", "unknown", "malformed", "empty"])
async def test_foreign_unknown_and_malformed_assets_are_answered_alike(
    services: Services, person: Person, stranger: Person, which: str
) -> None:
    foreign, _ = await give_asset(services, stranger)
    asset_id = {"foreign": str(foreign), "unknown": str(uuid.uuid4()), "malformed": "%00", "empty": ""}[which]

    refusal = await refused(services.library.GetAsset(reading(asset_id, "*"), metadata=as_person(person)))

    assert (refusal.code, dict(refusal.meta), refusal.violations) == ("assets.not_found", {}, ())


@pytest.mark.parametrize(("role", "unit"), [("cashier", None), ("waiter", None), ("manager", "Terraza")])
async def test_who_may_not_view_media_is_refused_and_the_denial_is_recorded(
    services: Services, owner: Connection, person: Person, role: str, unit: str | None
) -> None:
    asset_id, _ = await give_asset(services, person)
    other = await add_person(owner, person.organization_id, role, unit)

    refusal = await refused(services.library.GetAsset(reading(asset_id), metadata=as_person(other)))

    assert refusal.code == "assets.action_forbidden"
    (record,) = await owner.fetch("SELECT * FROM audit.records WHERE outcome = 'denied'")
    assert (record["action_code"], record["service"], record["actor_id"]) == (
        "assets.asset.viewed",
        "library",
        other.actor_id,
    )


async def test_reading_is_never_gated_by_the_plan(services: Services, owner: Connection, person: Person) -> None:
    asset_id, _ = await give_asset(services, person)
    await owner.execute("SELECT platform.end_subscription($1, now() - interval '1 second')", person.organization_id)

    answer = await services.library.GetAsset(reading(asset_id), metadata=as_person(person))

    assert answer.asset.id == str(asset_id)


async def test_no_session_and_another_organization_are_refused(
    services: Services, owner: Connection, person: Person, stranger: Person
) -> None:
    asset_id, _ = await give_asset(services, person)

    assert (await refused(services.library.GetAsset(reading(asset_id)))).code == "identity.unauthenticated"
    foreign = await refused(
        services.library.GetAsset(reading(asset_id), metadata=as_person(stranger, person.organization_id))
    )
    assert foreign.code == "tenant.context_rejected"
    nowhere = (("authorization", f"Bearer {person.token}"),)
    assert (await refused(services.library.GetAsset(reading(asset_id), metadata=nowhere))).code == (
        "tenant.context_rejected"
    )
    assert await count(owner, "audit.records WHERE organization_id IS NULL") == 1


@pytest.mark.case("A2b.12")
async def test_a_read_takes_one_statement_of_the_seven_it_may(services: Services, person: Person) -> None:
    asset_id, _ = await give_asset(services, person)
    await services.library.GetAsset(reading(asset_id), metadata=as_person(person))
    sent = services.statements["library"].sent
    sent.clear()

    await services.library.GetAsset(reading(asset_id), metadata=as_person(person))

    assert len(sent) == 1 <= 7
    assert "assets.read_asset" in sent[0]
