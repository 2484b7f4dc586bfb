"""Every operator version that ONNX's suite has no case for, against what `grid` names."""

import pytest

from tests.conformance import grid, older, suite, written_cases, written_ml_cases
from tests.conformance.exclusions import DISTRUSTED
from tests.conformance.operators import operators

VERSIONS = grid.without_cases()


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("key", VERSIONS, ids=lambda key: f"{key[0]}.{key[1]}-{key[2]}".strip("."))
def test_version(key):
    outcomes = grid.outcomes(key)
    assert outcomes, "no case of another version can be rewritten: write one"
    for outcome in outcomes:
        outcome.check()


def test_most_versions_are_held_against_onnxruntime():
    oracles = [grid.oracle_of(key) for key in VERSIONS]
    assert oracles.count(grid.ONNXRUNTIME) >= 370


def test_every_rewrite_and_written_case_is_of_an_operator():
    names = {name for _, name, _ in operators()}
    assert older.rewritten() | set(written_cases.CASES) | set(written_ml_cases.CASES) <= names


@pytest.mark.parametrize(("operator", "name"), DISTRUSTED)
def test_distrusted_cases_differ_from_onnxruntime(operator, name):
    case = next(case for case in suite.node_cases() if case.name == name)
    trial = older.older(case, suite.key_of(case))
    assert trial.operator == operator
    with pytest.raises(AssertionError):
        suite.assert_similar(trial.by_onnxruntime(), trial.expected, case.rtol, case.atol)
