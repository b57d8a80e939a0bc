"""Refusals as HTTP."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from libs.errors.refusal import FieldViolation, Refusal
from services.gateway.failures import failure_answer, printable


@given(st.text())
def test_text_from_outside_keeps_no_character_that_acts_instead_of_showing(text: str) -> None:
    shown = printable(text)
    assert len(shown) <= 300
    assert not set(shown) & set("\r\n\x00\x1b\x7f\u200e\u202e\u2028\u2066\ufeff")


def test_a_request_with_many_bad_fields_names_the_first_twenty() -> None:
    violations = tuple(FieldViolation(f"field{number}", "There is no such field.") for number in range(500))
    document = orjson.loads(failure_answer(Refusal("foundation.validation_failed", violations=violations)).body)
    assert len(document["error"]["meta"]["fields"]) == 20


def test_a_remedy_cannot_be_replaced_by_what_a_refusal_carries() -> None:
    document = orjson.loads(failure_answer(Refusal("assets.not_found", meta={"remedy": "click here"})).body)
    assert document["error"]["meta"]["remedy"] == "Check the id and the organization."
