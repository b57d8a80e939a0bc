import hashlib
from datetime import UTC, datetime

import pytest

from libs.assets.canonical_json import canonical_json
from libs.assets.entity_tag import entity_tag, matches


def test_canonical_json_is_compact_utf_8_with_sorted_keys() -> None:
    assert canonical_json({"b": [1, None, True], "a": {"z": "ñ", "y": 1.5}}) == (
        '{"a":{"y":1.5,"z":"ñ"},"b":[1,null,true]}'.encode()
    )


def test_canonical_json_refuses_a_value_whose_form_nobody_chose() -> None:
    with pytest.raises(TypeError):
        canonical_json({"at": datetime(2026, 1, 1, tzinfo=UTC)})


def test_the_tag_is_the_quoted_sha_256_of_the_canonical_document() -> None:
    expected = hashlib.sha256(b'{"a":1,"b":2}').hexdigest()
    assert entity_tag({"b": 2, "a": 1}) == f'"{expected}"'
    assert entity_tag({"b": 2, "a": 2}) != f'"{expected}"'


@pytest.mark.parametrize("header", ['"x"', 'W/"x"', '"a", "x"', ' "a",W/"x" ,"b"', "*", " * ", '"a,b" , "x"', '"","x"'])
def test_a_header_that_names_the_tag_matches(header: str) -> None:
    assert matches(header, '"x"')


@pytest.mark.parametrize("header", ["", "x", '"a"', '"a" "x"', '"xx"', 'w/"x"', '"x', '"a", "x', '*, "x"', '"X"'])
def test_a_header_that_does_not_name_it_does_not(header: str) -> None:
    assert not matches(header, '"x"')
