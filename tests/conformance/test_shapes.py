"""Shapes before and in a run, and values, are onnxruntime's; what differs is explained."""

from pathlib import Path

import pytest

from tests.conformance import compared_page, shapes
from tests.examples import at_night

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


@pytest.fixture(scope="module")
def cases():
    return [each for of in shapes.sample().values() for each in of]


@pytest.mark.nightly
def test_differences_from_onnxruntime_are_explained(cases):
    unexplained = [
        f"{each.key[1]} {each.opset} {each.trial.name}: "
        f"{each.shape_difference or each.value_difference or 'a shape is unknown'}"
        for each in cases
        if each.is_unexplained
    ]
    assert not unexplained


@pytest.mark.parametrize("every", at_night([1, 27], but=[27]))
def test_inferred_shapes_are_those_of_the_run(every):
    with shapes.Apart() as apart:
        for key in shapes.versions()[::every]:
            for each in shapes.comparisons(key, *shapes.SAMPLE, apart):
                if not isinstance(each.ours, str):
                    ran = [getattr(value, "shape", None) for value in each.ours]
                    for inferred, shape in zip(each.inferred, ran, strict=True):
                        assert inferred in (None, shape), f"{each.key} {each.trial.name}"


@pytest.mark.nightly
def test_most_versions_are_compared():
    assert sum(map(bool, shapes.sample().values())) >= 500


@pytest.mark.nightly
def test_the_page_shows_the_comparison():
    shown = PAGE.read_text(encoding="utf-8").partition(compared_page.TITLE)
    assert _without_differences("".join(shown[1:])) == _without_differences(compared_page.section())


def _without_differences(text: str) -> list[str]:
    """The lines without the last column: it differs from one processor to another."""
    return [line.rsplit("|", 2)[0] for line in text.splitlines()]
