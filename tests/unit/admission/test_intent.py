"""What a request for an upload must look like, and what its canonical form is."""

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.assets.asset import AccessClass, Asset, AssetStatus, MediaKind, SourceKind
from libs.assets.uuid7 import uuid7
from libs.errors.refusal import Refusal
from services.admission.domain import (
    Reservation,
    ReserveOutcome,
    UploadIntent,
    UploadRequest,
    accept,
    allowed_access_classes,
    policy_seconds,
)

NOW = datetime(2026, 10, 6, 14, 3, 11, tzinfo=UTC)
PUBLIC_ONLY = allowed_access_classes(data_policy_published=False)


def accepted(**changes: Any) -> UploadIntent:
    return accept(request(**changes), PUBLIC_ONLY)


def request(**changes: Any) -> UploadRequest:
    values: dict[str, Any] = {
        "idempotency_key": str(uuid.uuid4()),
        "media_type": "image/jpeg",
        "byte_size": 2_483_211,
        "access_class": AccessClass.PUBLIC,
        "display_name": None,
        "original_filename": None,
    }
    return UploadRequest(**(values | changes))


def refusal(**changes: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        accepted(**changes)
    return caught.value


def fields_of(refused: Refusal) -> list[str]:
    assert refused.code == "foundation.validation_failed"
    return [violation.field for violation in refused.violations]


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/png", "image/webp", "image/avif"])
def test_the_four_types_are_accepted_up_to_exactly_ten_mebibytes(media_type: str) -> None:
    assert accepted(media_type=media_type, byte_size=10_485_760).byte_size == 10_485_760
    assert accepted(media_type=media_type, byte_size=1).media_type == media_type


@pytest.mark.case("A2b.03")
@pytest.mark.parametrize(
    "media_type", ["image/svg+xml", "image/heic", "image/heif", "image/jpg", "application/x-thing"]
)
def test_another_media_type_is_unsupported(media_type: str) -> None:
    assert refusal(media_type=media_type).code == "assets.media_type_unsupported"


@pytest.mark.case("A2b.03")
def test_one_byte_over_ten_mebibytes_is_too_large() -> None:
    assert refusal(byte_size=10_485_761).code == "assets.file_too_large"


@pytest.mark.case("A2b.03")
@pytest.mark.parametrize("access_class", [AccessClass.PRIVATE, AccessClass.SENSITIVE])
def test_private_and_sensitive_are_offered_only_once_the_data_policy_is_published(access_class: AccessClass) -> None:
    assert refusal(access_class=access_class).code == "assets.access_class_unavailable"

    published = allowed_access_classes(data_policy_published=True)
    assert accept(request(access_class=access_class), published).access_class is access_class


@pytest.mark.parametrize(
    "media_type", ["", "jpeg", "image/", "/jpeg", "image/jpeg; q=1", "image/jpeg\n", "a/" + "b" * 254]
)
def test_what_is_no_media_type_is_invalid(media_type: str) -> None:
    assert fields_of(refusal(media_type=media_type)) == ["media_type"]


def test_a_media_type_is_the_same_in_capitals() -> None:
    assert accepted(media_type="Image/JPEG").media_type == "image/jpeg"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "not-a-uuid",
        "00000000-0000-0000-0000-000000000000",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",  # version 1
        "{c1e7a6d0-6d0a-4b57-9d0e-0f8f3f0d3f6a}",
        "c1e7a6d06d0a4b579d0e0f8f3f0d3f6a",
        "c1e7a6d0-6d0a-4b57-1d0e-0f8f3f0d3f6a",  # another variant
    ],
)
def test_a_key_that_is_no_uuid_of_version_4_or_7_is_invalid(key: str) -> None:
    assert fields_of(refusal(idempotency_key=key)) == ["idempotency_key"]


def test_keys_of_version_4_and_7_are_accepted() -> None:
    assert accepted(idempotency_key=str(uuid.uuid4())).idempotency_key.version == 4
    assert accepted(idempotency_key=str(uuid7()).upper()).idempotency_key.version == 7


def test_every_offending_field_is_named_at_once() -> None:
    refused = refusal(
        idempotency_key="x",
        media_type="",
        byte_size=0,
        access_class=None,
        display_name="  ",
        original_filename="a" * 256,
    )

    assert fields_of(refused) == [
        "idempotency_key",
        "media_type",
        "byte_size",
        "access_class",
        "display_name",
        "original_filename",
    ]


@pytest.mark.parametrize("byte_size", [0, -1, -(2**63)])
def test_fewer_than_one_byte_is_invalid(byte_size: int) -> None:
    assert fields_of(refusal(byte_size=byte_size)) == ["byte_size"]


def test_names_are_trimmed_and_composed() -> None:
    intent = accepted(display_name="  Hamburguesa cla\u0301sica \u3000", original_filename=" IMG 1.jpg ")

    assert intent.display_name == "Hamburguesa clásica"
    assert intent.original_filename == "IMG 1.jpg"


@pytest.mark.parametrize(
    "text", ["a\x00b", "a\nb", "a\x7fb", "a\u202eb", "a\u2066b", "a\u200fb", "a\u2028b", "\ufeffa"]
)
def test_a_display_name_with_control_or_direction_characters_is_refused_and_a_file_name_is_cleaned(text: str) -> None:
    assert fields_of(refusal(display_name=text)) == ["display_name"]
    assert accepted(original_filename=f"x{text}").original_filename in ("xab", "xa")


@pytest.mark.parametrize("text", ["\u200b", "\u3164 \u3164", "\u00ad\u2060", "\u2800", "\u034f\u200d", "\U000e0041"])
def test_a_display_name_of_which_nothing_can_be_seen_is_refused(text: str) -> None:
    assert fields_of(refusal(display_name=text)) == ["display_name"]
    assert accepted(display_name=f"a{text}b").display_name == f"a{text}b"


def test_emoji_joined_of_several_characters_are_kept() -> None:
    assert accepted(display_name="👩‍🍳 Küche").display_name == "👩‍🍳 Küche"


def test_a_file_name_of_nothing_but_control_characters_is_invalid() -> None:
    assert fields_of(refusal(original_filename="\x01\u202e")) == ["original_filename"]


def test_names_may_be_255_characters_long() -> None:
    assert len(accepted(display_name="ü" * 255).display_name or "") == 255
    assert fields_of(refusal(display_name="ü" * 256)) == ["display_name"]


@pytest.mark.case("A2b.02")
def test_the_hash_is_the_same_for_the_same_content_and_another_for_any_other() -> None:
    first = accepted(display_name="Pizza", original_filename="a.jpg")
    assert first.request_hash() == accepted(display_name=" Pizza ", original_filename="a.jpg").request_hash()
    assert len(first.request_hash()) == 64

    others = [
        dataclasses.replace(first, byte_size=first.byte_size + 1),
        dataclasses.replace(first, media_type=accepted(media_type="image/png").media_type),
        dataclasses.replace(first, access_class=AccessClass.PRIVATE),
        dataclasses.replace(first, display_name=None),
        dataclasses.replace(first, original_filename="b.jpg"),
        dataclasses.replace(first, display_name="a.jpg", original_filename="Pizza"),
    ]
    assert len({intent.request_hash() for intent in (first, *others)}) == len(others) + 1


def reservation(*, seconds_left: float, issued: bool = True) -> Reservation:
    asset = Asset(
        id=uuid7(),
        status=AssetStatus.PENDING,
        access_class=AccessClass.PUBLIC,
        media_kind=MediaKind.IMAGE,
        source_kind=SourceKind.UPLOAD,
        display_name=None,
        original_filename=None,
        width=None,
        height=None,
        byte_size=None,
        created_at=NOW,
        ready_at=None,
        archived_at=None,
        failure_code=None,
        delivery_token="a" * 26,
        rendition_profile=1,
    )
    return Reservation(
        outcome=ReserveOutcome.EXISTING,
        upload_id=uuid7(),
        is_issued=issued,
        request_hash="",
        staging_object_key="in/" + "a" * 26,
        expires_at=NOW + timedelta(seconds=seconds_left),
        media_type="image/jpeg",
        byte_size=1,
        asset=asset,
    )


@pytest.mark.case("A2b.02")
@pytest.mark.parametrize(
    ("seconds_left", "issued", "expected"),
    [
        (900, True, 600),
        (600, True, 600),
        (599.9, True, 599),
        (1, True, 1),
        (0.9, True, None),
        (-5, True, None),
        (900, False, None),
    ],
)
def test_a_form_lives_ten_minutes_at_most_and_never_past_its_upload(
    seconds_left: float, issued: bool, expected: int | None
) -> None:
    assert policy_seconds(reservation(seconds_left=seconds_left, issued=issued), NOW) == expected


def test_new_ids_are_of_version_7_and_sort_by_time() -> None:
    made = [uuid7() for _ in range(50)]

    assert {(one.version, one.variant) for one in made} == {(7, uuid.RFC_4122)}
    assert len(set(made)) == 50
    assert [one.int >> 80 for one in made] == sorted(one.int >> 80 for one in made)
