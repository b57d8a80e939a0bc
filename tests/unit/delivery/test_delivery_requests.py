"""Which assets and renditions a service may ask for."""

import uuid

import pytest

from libs.errors.refusal import Refusal
from services.delivery.domain import asset_ids_of, rendition_names_of


def test_ids_are_kept_in_the_order_first_named_without_repeats_and_malformed_ones() -> None:
    first, second = uuid.uuid4(), uuid.uuid4()

    assert asset_ids_of([str(second), "nonsense", str(first), str(second).upper()]) == [second, first]


@pytest.mark.parametrize("count", [0, 2_001])
def test_none_and_more_than_two_thousand_are_invalid(count: int) -> None:
    with pytest.raises(Refusal) as caught:
        asset_ids_of([str(uuid.uuid4())] * count)

    assert caught.value.code == "foundation.validation_failed"
    assert caught.value.violations[0].field == "asset_ids"


def test_two_thousand_are_taken() -> None:
    assert len(asset_ids_of([str(uuid.uuid4()) for _ in range(2_000)])) == 2_000


def test_no_rendition_named_means_all_and_an_unknown_one_is_invalid() -> None:
    assert rendition_names_of([]) is None
    assert rendition_names_of(["tile", "tile"]) == frozenset({"tile"})
    with pytest.raises(Refusal) as caught:
        rendition_names_of(["tile", "original"])
    assert caught.value.violations[0].field == "renditions"
