"""The table of public codes that people read."""

from libs.errors.documentation import README, codes_table, with_table
from libs.errors.registry import REGISTRY


def test_the_readme_lists_every_code_as_it_is_registered() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_table(text) == text, "run: python -m libs.errors.documentation"


def test_the_table_has_a_row_for_each_code_and_no_cell_that_breaks_it() -> None:
    rows = codes_table().splitlines()
    assert len(rows) == len(REGISTRY) + 2
    assert {row.count("|") for row in rows} == {6}
