"""The numbered cases of the specification, and the stages that have been built."""

import ast
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent

# A stage enters this list with the change that builds it; from then on each of its cases needs a marked test.
BUILT_STAGES = (
    "A1a-1",
    "A1a-2",
    "A1b",
    "A1c",
    "A2a-1",
    "A2a-2",
    "A2b",
    "A2c",
    "A3a",
    "A3b-1",
    "A3b-2",
    "A3c",
    "A4b",
)


@dataclass(frozen=True)
class Case:
    """One row of cases.tsv: `id` such as ``A1a-1.01``, its stage, its title and how this architecture reads it."""

    id: str
    stage: str
    title: str
    note: str


@dataclass(frozen=True)
class Proof:
    """One test that carries ``@pytest.mark.case(case_id)``."""

    case_id: str
    path: str
    test: str


def read_cases() -> tuple[Case, ...]:
    """Every case of the specification, in its order."""
    with (TESTS / "cases.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return tuple(Case(row["id"], row["stage"], row["title"], row["note"] or "") for row in rows)


def read_proofs(root: Path = TESTS) -> tuple[Proof, ...]:
    """Every case marker found in the source of the tests, without importing them."""
    found: list[Proof] = []
    for path in sorted(root.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found += [Proof(case_id, str(path.relative_to(root)), node.name) for case_id in _case_ids(node)]
    return tuple(found)


def _case_ids(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.case":
            for argument in decorator.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value
