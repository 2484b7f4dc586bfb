"""ONNX's own backend suite through `tracer.interpreter.backend`, one test per case."""

import numpy as np
import onnx
import pytest

from tests.conformance import suite
from tests.conformance.exclusions import EXCLUSIONS
from tracer.interpreter import backend


def _parameters(cases):
    return [pytest.param(case, id=case.name[len("test_") :], marks=_marks(case)) for case in cases]


def _marks(case):
    if case.name not in EXCLUSIONS:
        return []
    return [pytest.mark.xfail(reason=EXCLUSIONS[case.name], strict=True)]


NODE_CASES = suite.node_cases()
FILE_CASES = suite.file_cases()


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("case", _parameters(NODE_CASES))
def test_single_operator(case):
    _check(case, backend.prepare(case.model))


@pytest.mark.parametrize("case", _parameters(FILE_CASES))
def test_stored_model(case):
    _check(case, backend.prepare(onnx.load(f"{case.model_dir}/model.onnx")))


def test_the_suite_has_the_cases_we_count_on():
    assert len(NODE_CASES) >= 1884
    assert len(FILE_CASES) >= 140
    names = {case.name for case in NODE_CASES + FILE_CASES}
    assert set(EXCLUSIONS) <= names


def _check(case, prepared):
    for inputs, expected in suite.data_sets(case):
        outputs = prepared.run(inputs)
        suite.assert_similar(list(outputs), list(expected), case.rtol, case.atol)
        assert all(isinstance(v, np.ndarray | list | dict | None) for v in outputs)
