"""Ids as callers write them."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.rpc.identifiers import NOBODYS, parse_uuid, uuid_or_nobodys
from libs.rpc.metadata import is_request_id, new_request_id


@given(st.uuids())
def test_every_uuid_in_its_usual_form_is_read(value: uuid.UUID) -> None:
    assert parse_uuid(str(value)) == value
    assert parse_uuid(str(value).upper()) == value


@given(st.text(max_size=40))
def test_any_other_text_is_looked_up_as_the_id_that_nothing_has(text: str) -> None:
    assert uuid_or_nobodys(text) == NOBODYS or str(uuid_or_nobodys(text)) == text.lower()


@pytest.mark.parametrize("form", ["{%s}", "urn:uuid:%s", "%s\n", " %s"])
def test_other_forms_of_a_uuid_are_not_taken(form: str) -> None:
    assert parse_uuid(form % uuid.uuid4()) is None


@given(st.text(max_size=80))
def test_a_request_id_that_is_kept_is_harmless_in_a_header_and_a_log(text: str) -> None:
    if is_request_id(text):
        assert text.isascii()
        assert text.isprintable()
        assert " " not in text
        assert 1 <= len(text) <= 64


def test_a_new_request_id_is_well_formed() -> None:
    assert is_request_id(new_request_id())
