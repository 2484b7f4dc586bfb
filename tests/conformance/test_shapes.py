"""Shapes before and in a run, and values, are onnxruntime's; what differs is explained."""

import pytest

from tests.conformance import shapes


@pytest.fixture(scope="module")
def cases():
    return [each for of in shapes.sample().values() for each in of]


def test_differences_from_onnxruntime_are_explained(cases):
    unexplained = [
        f"{each.key[1]} {each.opset} {each.trial.name}: "
        f"{each.shape_difference or each.value_difference or 'a shape is unknown'}"
        for each in cases
        if each.is_unexplained
    ]
    assert not unexplained


def test_inferred_shapes_are_those_of_the_run(cases):
    for each in cases:
        if not isinstance(each.ours, str):
            ran = [getattr(value, "shape", None) for value in each.ours]
            for inferred, shape in zip(each.inferred, ran, strict=True):
                assert inferred in (None, shape), f"{each.key} {each.trial.name}"


def test_most_versions_are_compared():
    assert sum(map(bool, shapes.sample().values())) >= 500
