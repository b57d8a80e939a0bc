"""Each case of a built stage has a proof, and each proof names a case that exists."""

from tests.cases import BUILT_STAGES, read_cases, read_proofs


def test_every_case_of_a_built_stage_has_a_marked_test() -> None:
    proved = {proof.case_id for proof in read_proofs()}
    missing = [
        f"{case.id}  {case.title}" for case in read_cases() if case.stage in BUILT_STAGES and case.id not in proved
    ]
    assert not missing, "no test carries these cases:\n" + "\n".join(missing)


def test_every_marked_test_names_a_case_of_the_specification() -> None:
    known = {case.id for case in read_cases()}
    unknown = [
        f"{proof.path}::{proof.test} marks {proof.case_id}" for proof in read_proofs() if proof.case_id not in known
    ]
    assert not unknown, "\n".join(unknown)


def test_every_built_stage_is_a_stage_of_the_specification() -> None:
    stages = {case.stage for case in read_cases()}
    assert set(BUILT_STAGES) <= stages
