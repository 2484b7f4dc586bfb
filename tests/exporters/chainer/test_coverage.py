from pathlib import Path

import pytest

from tests.exporters.chainer.cases import CASES, UNREACHABLE
from tests.exporters.chainer.coverage import measure, table
from tracer.exporters.chainer.compat import chainer_ready
from tracer.exporters.chainer.converters import CONVERTERS

chainer_ready()
pytest.importorskip("chainer")


def test_every_function_that_onnx_chainer_claims_has_a_case_or_a_reason():
    from onnx_chainer import mapping

    claimed = set(mapping.converters) | CONVERTERS.keys()
    assert {case.function for case in CASES} | UNREACHABLE.keys() == claimed


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.function}: {case.expression}")
def test_a_case_passes_and_is_of_the_function_it_stands_for(case):
    outcome = measure(case)
    assert outcome.failure == ""
    assert case.function in outcome.functions


@pytest.mark.nightly
def test_the_page_in_the_docs_is_what_is_measured():
    page = Path(__file__).parents[3] / "docs" / "chainer-coverage.md"
    assert page.read_text(encoding="utf-8") == table(), (
        "run python -m tests.exporters.chainer.coverage"
    )
