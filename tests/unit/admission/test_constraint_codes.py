"""Constraints of the database and the codes people see."""

import re
from pathlib import Path

import pytest

import database
from libs.database.errors import DatabaseError
from libs.errors.registry import REGISTRY
from services.admission.repository import CODES_OF_CONSTRAINTS, refusal_of

SCHEMA = Path(database.__file__).parent / "schema" / "assets"
CODES = {
    "assets_asset_limit": "assets.asset_limit_reached",
    "assets_storage_limit": "assets.storage_limit_reached",
    "assets_open_uploads_limit": "assets.too_many_open_uploads",
    "assets_access_class_unavailable": "assets.access_class_unavailable",
    "assets_status_transition": "assets.transition_invalid",
    "assets_restoration_expired": "assets.restoration_expired",
}


def constraints_of_the_schema() -> set[str]:
    """Every constraint that the tables declare and the functions raise."""
    names: set[str] = set()
    for file in SCHEMA.rglob("*.sql"):
        text = file.read_text(encoding="utf-8")
        names.update(re.findall(r"CONSTRAINT\s*=\s*'([a-z_]+)'", text))
        names.update(re.findall(r"\bCONSTRAINT ([a-z_]+)", text))
        names.update(re.findall(r"assert_read_committed\('([a-z_]+)'\)", text))
    return names


@pytest.mark.case("A2a-1.10")
def test_every_constraint_of_the_schema_has_its_code_and_the_rest_is_the_generic_refusal() -> None:
    names = constraints_of_the_schema()
    assert len(names) > 30, "the schema was not found"
    assert set(CODES) <= names, "a constraint of the table is raised nowhere"

    for name in names:
        assert refusal_of(DatabaseError("23514", name)).code == CODES.get(name, "assets.asset_refused"), name


@pytest.mark.case("A2a-1.10")
@pytest.mark.parametrize(("sqlstate", "constraint"), [("23514", "something_new"), ("23505", "x_uq"), ("23502", None)])
def test_an_unknown_constraint_is_the_generic_refusal(sqlstate: str, constraint: str | None) -> None:
    assert refusal_of(DatabaseError(sqlstate, constraint)).code == "assets.asset_refused"


def test_what_is_no_constraint_is_a_fault_of_ours_and_no_refusal() -> None:
    fault = DatabaseError("42501", "tenant_context_missing")
    with pytest.raises(DatabaseError) as caught:
        refusal_of(fault)

    assert caught.value is fault


def test_every_code_of_the_table_is_registered() -> None:
    assert set(CODES_OF_CONSTRAINTS.values()) <= set(REGISTRY)
