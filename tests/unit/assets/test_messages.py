import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from ninaku.assets.v1 import resources_pb2 as pb

from libs.assets import messages
from libs.assets.asset import AccessClass, Asset, AssetStatus, MediaKind, SourceKind
from libs.assets.messages import asset_document, asset_to_message
from libs.assets.public_urls import PublicUrls
from libs.errors.registry import REGISTRY

TOKEN = "k7q2m4xaparat6v2w5y2z7a4bc"
URLS = PublicUrls("https://media.example.com")
READY = Asset(
    id=uuid.UUID("01929c3e-7d4e-7a51-9f00-5c2b3c1a9e10"),
    status=AssetStatus.READY,
    access_class=AccessClass.PUBLIC,
    media_kind=MediaKind.IMAGE,
    source_kind=SourceKind.UPLOAD,
    display_name="Hamburguesa clásica",
    original_filename=None,
    width=4000,
    height=3000,
    byte_size=812_331,
    created_at=datetime(2026, 10, 6, 14, 3, 11, 402_999, tzinfo=UTC),
    ready_at=datetime(2026, 10, 6, 14, 3, 13, tzinfo=UTC),
    archived_at=None,
    failure_code=None,
    delivery_token=TOKEN,
    rendition_profile=1,
)


def test_a_ready_public_asset_has_the_document_of_the_specification() -> None:
    assert asset_document(asset_to_message(READY, URLS)) == {
        "id": "01929c3e-7d4e-7a51-9f00-5c2b3c1a9e10",
        "status": "ready",
        "accessClass": "public",
        "mediaKind": "image",
        "sourceKind": "upload",
        "displayName": "Hamburguesa clásica",
        "originalFilename": None,
        "width": 4000,
        "height": 3000,
        "byteSize": 812331,
        "createdAt": "2026-10-06T14:03:11.402Z",
        "readyAt": "2026-10-06T14:03:13.000Z",
        "archivedAt": None,
        "failureCode": None,
        "failure": None,
        "aiGenerated": False,
        "renditions": {
            name: {"url": f"https://media.example.com/a/{TOKEN}/p1/{name}.webp"}
            for name in ("thumbnail", "tile", "card", "detail")
        },
    }


@pytest.mark.parametrize(
    "asset",
    [
        *(
            replace(READY, status=status, ready_at=None, width=None, height=None, byte_size=None)
            for status in AssetStatus
            if status is not AssetStatus.READY
        ),
        replace(READY, access_class=AccessClass.PRIVATE),
        replace(READY, access_class=AccessClass.SENSITIVE),
    ],
    ids=lambda asset: f"{asset.status}-{asset.access_class}",
)
def test_no_other_asset_has_a_url(asset: Asset) -> None:
    message = asset_to_message(asset, URLS)
    assert asset_document(message)["renditions"] == dict.fromkeys(("thumbnail", "tile", "card", "detail"))
    assert TOKEN not in str(message)


def test_nothing_has_a_url_where_no_public_base_is_configured() -> None:
    assert set(asset_document(asset_to_message(READY, None))["renditions"].values()) == {None}


def test_a_failed_asset_says_why_and_what_to_do() -> None:
    failed = replace(READY, status=AssetStatus.FAILED, failure_code="assets.image_corrupt")
    document = asset_document(asset_to_message(failed, URLS))
    entry = REGISTRY["assets.image_corrupt"]
    assert document["failureCode"] == "assets.image_corrupt"
    assert document["failure"] == {"message": entry.message, "remedy": entry.remedy}


def test_a_failure_code_without_an_entry_still_gets_words() -> None:
    failed = replace(READY, status=AssetStatus.FAILED, failure_code="assets.of_another_release")
    failure = asset_document(asset_to_message(failed, URLS))["failure"]
    assert failure["message"]
    assert failure["remedy"]


@pytest.mark.parametrize(
    ("values", "enum"),
    [
        (messages.STATUS_VALUES, pb.AssetStatus),
        (messages.ACCESS_CLASS_VALUES, pb.AccessClass),
        (messages.MEDIA_KIND_VALUES, pb.MediaKind),
        (messages.SOURCE_KIND_VALUES, pb.SourceKind),
    ],
)
def test_the_domain_and_the_wire_have_the_same_words(values: dict[object, int], enum: object) -> None:
    names = {name: number for name, number in enum.items() if number != 0}  # type: ignore[attr-defined]
    assert sorted(values.values()) == sorted(names.values())
    for word, number in values.items():
        assert enum.Name(number).lower().endswith(f"_{word}")  # type: ignore[attr-defined]
