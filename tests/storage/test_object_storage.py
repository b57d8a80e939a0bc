"""The real S3 server: what browsers, admission and the worker may do with it."""

import httpx
import pytest

from libs.assets.object_keys import master_key, public_rendition_key, staging_key
from libs.assets.tokens import generate_delivery_token
from libs.storage.object_store import ObjectStore
from libs.storage.upload_policy import UploadPolicy, UploadPolicySigner
from services.cli.local.object_storage import LocalObjectStorage

IMMUTABLE = "public, max-age=31536000, immutable"


async def post(signed: UploadPolicy, content: bytes, **changed: str) -> httpx.Response:
    fields = {**signed.fields, **changed}
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.post(signed.url, data=fields, files={"file": ("photo", content, fields["Content-Type"])})


@pytest.mark.case("A2a-2.02")
async def test_takes_a_form_of_exactly_the_declared_size_and_not_one_byte_more(
    upload_policy_signer: UploadPolicySigner, object_store: ObjectStore
) -> None:
    key = staging_key(generate_delivery_token())
    policy = await upload_policy_signer.sign(key, "image/jpeg", 1_000, 600)

    assert (await post(policy, b"x" * 1_001)).status_code == 400
    assert await object_store.head("s3-private", key) is None
    assert (await post(policy, b"")).status_code == 400
    assert await object_store.head("s3-private", key) is None
    assert (await post(policy, b"x" * 1_000)).status_code == 204
    assert await object_store.head("s3-private", key) == 1_000


@pytest.mark.case("A2a-2.02")
async def test_refuses_another_type_another_key_and_a_changed_policy(
    upload_policy_signer: UploadPolicySigner, object_store: ObjectStore
) -> None:
    key, other = (staging_key(generate_delivery_token()) for _ in range(2))
    policy = await upload_policy_signer.sign(key, "image/jpeg", 1_000, 600)
    larger = await upload_policy_signer.sign(key, "image/jpeg", 2_000, 600)

    assert (await post(policy, b"x", **{"Content-Type": "image/png"})).status_code == 403
    assert (await post(policy, b"x", key=other)).status_code == 403
    assert (await post(policy, b"x", policy=larger.fields["policy"])).status_code == 403
    assert await object_store.head("s3-private", key) is None
    assert await object_store.head("s3-private", other) is None


async def test_the_identity_that_signs_uploads_reads_nothing(
    object_storage: LocalObjectStorage, object_store: ObjectStore
) -> None:
    from pydantic import SecretStr

    from libs.storage.clients import Provider, StorageAccount, StorageLayout
    from libs.storage.errors import StorageRefused
    from libs.storage.object_store import open_object_store

    key = master_key(generate_delivery_token())
    await object_store.put("s3-private", key, b"master", "image/webp", None)
    identifier, secret = object_storage.api_key
    account = StorageAccount(
        object_storage.private_bucket, "us-east-1", identifier, SecretStr(secret), object_storage.endpoint_url
    )
    async with open_object_store(StorageLayout({Provider.S3_PRIVATE: account}, Provider.S3_PUBLIC)) as store:
        with pytest.raises(StorageRefused):
            await store.read_at_most("s3-private", key, 10)


@pytest.mark.case("A2a-2.03")
async def test_reads_what_was_written_up_to_one_byte_past_the_cap(object_store: ObjectStore) -> None:
    key = master_key(generate_delivery_token())
    content = bytes(range(256)) * 4_000

    assert await object_store.head("s3-private", key) is None
    assert await object_store.read_at_most("s3-private", key, len(content)) is None
    await object_store.put("s3-private", key, content, "image/webp", None)
    assert await object_store.head("s3-private", key) == len(content)
    assert await object_store.read_at_most("s3-private", key, len(content)) == content
    assert await object_store.read_at_most("s3-private", key, len(content) - 1) == content
    assert await object_store.read_at_most("s3-private", key, 70_000) == content[:70_001]

    await object_store.remove("s3-private", key)
    assert await object_store.head("s3-private", key) is None
    await object_store.remove("s3-private", key)


async def test_anyone_fetches_a_public_rendition_with_its_headers_and_nobody_a_master(
    object_storage: LocalObjectStorage, object_store: ObjectStore
) -> None:
    token = generate_delivery_token()
    rendition, master = public_rendition_key(token, 1, "tile"), master_key(token)
    await object_store.put(object_store.public_provider, rendition, b"tile", "image/webp", IMMUTABLE)
    await object_store.put("s3-private", master, b"master", "image/webp", None)

    async with httpx.AsyncClient(trust_env=False) as http:
        fetched = await http.get(f"{object_storage.public_base_url}/{rendition}")
        refused = await http.get(f"{object_storage.endpoint_url}/{object_storage.private_bucket}/{master}")

    assert (fetched.status_code, fetched.content) == (200, b"tile")
    assert fetched.headers["content-type"] == "image/webp"
    assert fetched.headers["cache-control"] == IMMUTABLE
    assert refused.status_code == 403


async def test_under_plan_b_the_same_rendition_is_public_below_a_of_the_private_bucket(
    object_storage: LocalObjectStorage, plan_b_store: ObjectStore
) -> None:
    rendition = public_rendition_key(generate_delivery_token(), 1, "tile")
    assert plan_b_store.public_provider == "s3-public"
    await plan_b_store.put("s3-public", rendition, b"tile", "image/webp", IMMUTABLE)

    async with httpx.AsyncClient(trust_env=False) as http:
        fetched = await http.get(f"{object_storage.endpoint_url}/{object_storage.private_bucket}/{rendition}")
    assert (fetched.status_code, fetched.content) == (200, b"tile")
    assert await plan_b_store.head("s3-private", rendition) == 4


async def test_a_browser_of_any_origin_may_post_to_the_local_server(object_storage: LocalObjectStorage) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        preflight = await http.options(
            f"{object_storage.endpoint_url}/{object_storage.private_bucket}",
            headers={"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"},
        )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] in ("*", "http://localhost:3000")
