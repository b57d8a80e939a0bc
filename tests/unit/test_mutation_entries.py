"""Each mutation still fits the code it breaks, and names cases that exist."""

from tests.cases import read_cases
from tests.mutations import misplaced, read_mutations


def test_every_mutation_finds_its_text_exactly_once() -> None:
    lost = [f"{mutation.title}: {problem}" for mutation in read_mutations() if (problem := misplaced(mutation))]
    assert not lost, "\n".join(lost)


def test_every_mutation_names_cases_of_the_specification() -> None:
    known = {case.id for case in read_cases()}
    unknown = [
        mutation.title for mutation in read_mutations() if not mutation.cases or not known.issuperset(mutation.cases)
    ]
    assert not unknown, "\n".join(unknown)
