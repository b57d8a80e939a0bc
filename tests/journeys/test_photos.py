"""Photos from intent to ready, or to a refusal in words: with a real worker."""

import asyncio
import io
import uuid
from collections.abc import Iterator
from typing import Any, cast

import grpc
import httpx
import pytest
from ninaku.assets.v1 import resources_pb2
from ninaku.delivery.v1 import asset_delivery_pb2, asset_delivery_pb2_grpc
from PIL import Image

from libs.errors.registry import REGISTRY
from libs.rpc.client import Channel
from libs.rpc.metadata import outgoing_metadata
from libs.storage.object_store import ObjectStore
from services.gateway.assets_documents import AssetEnvelope
from tests.support import images
from tests.support.database import Connection
from tests.support.stack import Hire, Member, Service, Stack

RENDITIONS = {"thumbnail": (160, 160), "tile": (320, 320), "card": (640, 480), "detail": (800, 600)}
NO_URLS = dict.fromkeys(RENDITIONS)


@pytest.fixture(scope="module")
def worker(stack: Stack) -> Iterator[Service]:
    """One media worker for the journeys of this file."""
    with stack.worker() as service:
        yield service


@pytest.mark.case("A2b.08")
async def test_a_photo_becomes_ready_and_every_public_url_serves_its_rendition_for_ever(
    hire: Hire, worker: Service, stack: Stack
) -> None:
    member = await hire()
    photo = images.jpeg(600, 800, exif=images.exif(orientation=6, gps=True))
    asset_id = await member.send(photo, displayName="Hamburguesa")
    asset = await member.settled(asset_id)

    assert asset["status"] == "ready", asset
    assert (asset["width"], asset["height"]) == (800, 600)
    assert asset["byteSize"] > 0
    assert asset["readyAt"] > asset["createdAt"]
    assert (asset["failureCode"], asset["failure"], asset["aiGenerated"]) == (None, None, False)
    assert set(asset["renditions"]) == set(RENDITIONS)
    for name, size in RENDITIONS.items():
        url = asset["renditions"][name]["url"]
        assert url.startswith(f"{stack.storage.public_base_url}/a/")
        assert url.endswith(f"/p1/{name}.webp")
        fetched = await member.http.get(url)
        assert fetched.status_code == 200
        assert fetched.headers["content-type"] == "image/webp"
        assert fetched.headers["cache-control"] == "public, max-age=31536000, immutable"
        with Image.open(io.BytesIO(fetched.content)) as picture:
            assert (picture.format, picture.size) == ("WEBP", size)
            assert not picture.getexif()
        assert images.CANARY.encode() not in fetched.content
    assert "/m/" not in str(asset)

    read = await member.read(asset_id)
    AssetEnvelope.model_validate(read.json())
    assert read.headers["cache-control"] == "private, no-cache"
    tag = read.headers["etag"]
    assert tag.startswith('"')
    held = await member.read(asset_id, **{"If-None-Match": f'"other", {tag}'})
    assert (held.status_code, held.content, held.headers["etag"]) == (304, b"", tag)
    assert (await member.read(asset_id, **{"If-None-Match": '"other"'})).status_code == 200


@pytest.mark.case("A2b.08")
async def test_the_master_is_reached_by_nobody(
    hire: Hire, worker: Service, stack: Stack, owner_connection: Connection
) -> None:
    member = await hire()
    asset_id = await member.send(images.jpeg(80, 80))
    assert (await member.settled(asset_id))["status"] == "ready"
    key = await owner_connection.fetchval(
        "SELECT o.object_key FROM assets.storage_objects o JOIN assets.asset_variants v ON v.id = o.variant_id "
        "WHERE v.asset_id = $1 AND v.variant_code = 'original'",
        uuid.UUID(asset_id),
    )
    for bucket in (stack.storage.private_bucket, stack.storage.public_bucket):
        refused = await member.http.get(f"{stack.storage.endpoint_url}/{bucket}/{key}")
        assert refused.status_code in (403, 404)


async def test_the_services_see_what_the_gateway_shows(hire: Hire, worker: Service, stack: Stack) -> None:
    member, stranger = await hire(), await hire()
    asset_id = await member.send(images.jpeg(100, 80))
    asset = await member.settled(asset_id)
    async with Channel(stack.services["delivery"].address) as channel:
        stub = asset_delivery_pb2_grpc.AssetDeliveryStub(cast("grpc.aio.Channel", channel))
        described, foreign = [
            await stub.Describe(
                asset_delivery_pb2.DescribeRequest(asset_ids=[str(uuid.uuid4()), asset_id]),
                metadata=outgoing_metadata(
                    "r1",
                    (
                        "authorization",
                        f"Bearer {stack.issuer.issue('delivery', someone.organization_id, someone.membership_id)}",
                    ),
                ),
            )
            for someone in (member.person, stranger.person)
        ]
    (description,) = described.assets
    assert description.asset_id == asset_id
    assert description.status == resources_pb2.ASSET_STATUS_READY
    assert {one.name: {"url": one.url} for one in description.renditions} == asset["renditions"]
    assert (description.width, description.height) == (100, 80)
    assert list(foreign.assets) == []


@pytest.mark.case("A2b.09")
@pytest.mark.case("A2c.02")
async def test_a_file_that_is_not_what_it_was_said_to_be_fails_in_words_and_stays_failed(
    hire: Hire, worker: Service, owner_connection: Connection
) -> None:
    member = await hire()
    asset_id = await member.send(images.encode(images.quadrants(100, 100), "PNG"), "image/jpeg")
    asset = await member.settled(asset_id)
    entry = REGISTRY["assets.content_mismatch"]
    assert asset["status"] == "failed"
    assert asset["failureCode"] == entry.code
    assert asset["failure"] == {"message": entry.message, "remedy": entry.remedy}
    assert asset["renditions"] == NO_URLS
    assert (asset["width"], asset["height"], asset["byteSize"]) == (None, None, None)
    upload_id = await owner_connection.fetchval(
        "SELECT id FROM assets.uploads WHERE asset_id = $1", uuid.UUID(asset_id)
    )
    refused = await member.complete(str(upload_id))
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "assets.upload_rejected"
    usage = await owner_connection.fetchrow(
        "SELECT stored_bytes, reserved_bytes FROM assets.organization_usage WHERE organization_id = $1",
        member.person.organization_id,
    )
    assert tuple(usage) == (0, 0)


async def test_one_bad_file_among_twenty_fails_alone(hire: Hire, worker: Service) -> None:
    member = await hire()
    good, bad = images.jpeg(90, 70), images.jpeg(90, 70)[:-200]
    ids = [await member.send(bad if number == 7 else good) for number in range(20)]
    assets = await asyncio.gather(*(member.settled(asset_id) for asset_id in ids))
    assert [asset["status"] for asset in assets] == ["failed" if number == 7 else "ready" for number in range(20)]
    assert assets[7]["failureCode"] == "assets.image_corrupt"


async def test_twenty_parallel_completions_make_one_ready_asset_and_a_repeat_shows_it(
    hire: Hire, worker: Service, owner_connection: Connection
) -> None:
    member, data, key = await hire(), images.jpeg(90, 70), uuid.uuid4()
    requested = (await member.request_upload(key, byteSize=len(data))).json()["data"]
    assert (await member.post_file(requested["upload"], data)).status_code == 204
    answers = await asyncio.gather(*(member.complete(requested["upload"]["id"]) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {202}
    asset = await member.settled(requested["asset"]["id"])
    assert asset["status"] == "ready"
    jobs = await owner_connection.fetch(
        "SELECT state, attempt_count FROM assets.processing_jobs WHERE asset_id = $1", uuid.UUID(asset["id"])
    )
    assert [tuple(job) for job in jobs] == [("completed", 0)]  # no attempt failed

    again = await member.complete(requested["upload"]["id"])
    assert (again.status_code, again.json()["data"]) == (202, asset)
    replay = await member.request_upload(key, byteSize=len(data))
    assert replay.status_code == 201
    assert replay.headers["idempotent-replayed"] == "true"
    assert replay.json()["data"]["asset"]["status"] == "ready"
    assert replay.json()["data"]["upload"] is None


async def test_a_form_that_is_posted_again_after_completion_changes_nothing_that_was_verified(
    hire: Hire, worker: Service
) -> None:
    member, data = await hire(), images.jpeg(90, 70)
    requested = (await member.request_upload(byteSize=len(data) + 10_000)).json()["data"]
    # The declared size is the form's bound; the worker compares it with what arrived.
    exact = data + b"\x00" * 10_000
    assert (await member.post_file(requested["upload"], exact)).status_code == 204
    await member.complete(requested["upload"]["id"])
    asset = await member.settled(requested["asset"]["id"])
    assert asset["status"] == "ready", asset
    before = await _everything_served(member, asset)

    other = images.encode(images.quadrants(70, 90).rotate(90), "JPEG")
    assert (await member.post_file(requested["upload"], other)).status_code == 204
    assert (await member.complete(requested["upload"]["id"])).json()["data"] == asset
    assert await _everything_served(member, asset) == before
    assert (await member.read(asset["id"])).json()["data"] == asset


async def test_a_photo_of_another_tenant_is_neither_seen_nor_completed(hire: Hire, worker: Service) -> None:
    member, stranger = await hire(), await hire()
    data = images.jpeg(90, 70)
    requested = (await member.request_upload(byteSize=len(data))).json()["data"]
    assert (await member.post_file(requested["upload"], data)).status_code == 204
    assert (await stranger.complete(requested["upload"]["id"])).status_code == 404
    assert (await stranger.read(requested["asset"]["id"])).status_code == 404
    assert (await member.read(requested["asset"]["id"])).json()["data"]["status"] == "pending"
    await member.complete(requested["upload"]["id"])
    assert (await member.settled(requested["asset"]["id"]))["status"] == "ready"
    assert (await stranger.read(requested["asset"]["id"])).status_code == 404


async def test_an_upload_that_is_completed_without_its_file_fails_as_missing_once_it_has_expired(
    hire: Hire, worker: Service, owner_connection: Connection
) -> None:
    member = await hire()
    requested = (await member.request_upload()).json()["data"]
    await member.complete(requested["upload"]["id"])
    await owner_connection.execute(
        "UPDATE assets.uploads SET expires_at = now() + interval '200 milliseconds' WHERE id = $1",
        uuid.UUID(requested["upload"]["id"]),
    )
    asset = await member.settled(requested["asset"]["id"])
    assert (asset["status"], asset["failureCode"]) == ("failed", "assets.upload_missing")


@pytest.mark.case("A2b.09")
async def test_an_upload_that_is_never_completed_expires_gives_its_quota_back_and_leaves_no_object(
    hire: Hire, stack: Stack, owner_connection: Connection, object_store: ObjectStore
) -> None:
    member, data = await hire(), images.jpeg(90, 70)
    requested = (await member.request_upload(byteSize=len(data))).json()["data"]
    assert (await member.post_file(requested["upload"], data)).status_code == 204
    key = requested["upload"]["fields"]["key"]
    assert await object_store.head("s3-private", key) == len(data)
    await owner_connection.execute(
        "UPDATE assets.uploads SET expires_at = now(), created_at = now() - interval '1 hour' WHERE id = $1",
        uuid.UUID(requested["upload"]["id"]),
    )
    await owner_connection.execute("UPDATE assets.sweeps SET next_due_at = now()")
    with stack.worker():
        asset = await member.settled(requested["asset"]["id"])
        async with asyncio.timeout(30):
            while await object_store.head("s3-private", key) is not None:
                await asyncio.sleep(0.05)
    assert (asset["status"], asset["failureCode"]) == ("failed", "assets.upload_expired")
    assert asset["renditions"] == NO_URLS
    refused = await member.complete(requested["upload"]["id"])
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "assets.upload_expired")
    usage = await owner_connection.fetchrow(
        "SELECT active_asset_count, reserved_bytes FROM assets.organization_usage WHERE organization_id = $1",
        member.person.organization_id,
    )
    assert usage["reserved_bytes"] == 0
    assert (await member.request_upload()).status_code == 201


async def test_nothing_secret_of_a_journey_is_in_any_log(hire: Hire, worker: Service, stack: Stack) -> None:
    member, data = await hire(), images.jpeg(90, 70)
    requested = (await member.request_upload(byteSize=len(data), originalFilename="holiday-secret.jpg")).json()["data"]
    await member.post_file(requested["upload"], data)
    await member.complete(requested["upload"]["id"])
    await member.settled(requested["asset"]["id"])
    logged = stack.written() + worker.written()
    fields = requested["upload"]["fields"]
    secrets = [value for name, value in fields.items() if name.lower() in ("policy", "x-amz-signature")]
    assert len(secrets) == 2
    for secret in (*secrets, member.person.token, "holiday-secret", stack.storage.api_key[1]):
        assert secret not in logged


async def _everything_served(member: Member, asset: dict[str, Any]) -> dict[str, bytes]:
    async def fetch(url: str) -> bytes:
        response: httpx.Response = await member.http.get(url)
        assert response.status_code == 200
        return response.content

    return {name: await fetch(rendition["url"]) for name, rendition in asset["renditions"].items()}
