"""The samples that a change endangers most."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import graphs
from tests.examples import examples
from tracer import metrics
from tracer.graph import loading
from tracer.inputs.datasets.dataset import choose_samples
from tracer.inputs.datasets.opening import open_dataset
from tracer.metrics.scores import lead
from tracer.whatif.criteria import hardest, summary


@examples(40)
@given(st.integers(1, 30), st.integers(2, 9), st.integers(0, 10**6))
def test_a_lead_is_what_may_be_added_to_another_class_before_it_wins(count, classes, seed):
    outputs = np.random.default_rng(seed).normal(size=(count, classes))
    leads = lead(outputs)
    for output, own in zip(outputs, leads, strict=True):
        best = output.argmax()
        for factor, wins in ((0.99, False), (1.01, True)):
            changed = output + own * factor * (np.arange(classes) != best)
            assert (changed.argmax() != best) == wins


def test_the_least_lead_of_several_predictions_counts():
    outputs = np.random.default_rng(0).normal(size=(5, 3, 4))  # tokens
    np.testing.assert_array_equal(lead(outputs), [lead(sample).min() for sample in outputs])
    pixels = np.moveaxis(outputs[:, None], -1, 1)
    np.testing.assert_array_equal(lead(pixels), lead(outputs))
    assert lead(np.ones((3, 1))).tolist() == lead(np.ones(3)).tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("error")
def test_nothing_leads_among_infinite_classes_and_scores_that_are_no_numbers():
    infinite = [[np.inf, np.inf, 0.0], [-np.inf, -np.inf, -np.inf], [np.nan, 1.0, 0.0]]
    assert lead(np.array(infinite)).tolist() == [0, 0, 0]
    assert lead(np.array([[np.inf, 1.0, 0.0]])).tolist() == [np.inf]


def wide_batch(metric, scores, outputs):
    text = '<ir_version: 9, opset_import: ["": 20]> g (float[N] x) => (float[N] y) {y = Relu (x)}'
    return summary(loading.from_proto(graphs.parse(text)), metric)(scores, [outputs])


def test_wrong_samples_are_hardest_then_those_with_the_least_lead():
    outputs = np.array([[0, 9.0], [0, 1], [0, 2], [5, 0], [0, 3], [1, 0]])
    scores = np.array([1, 1, 1, 0, 1, 0.0])
    top1, mse = map(metrics.find, ("top1", "mse"))
    runs = [wide_batch(top1, scores[:4], outputs[:4]), wide_batch(top1, scores[4:], outputs[4:])]
    for count, expected in enumerate(([5], [3, 5], [1, 3, 5], [1, 2, 3, 5]), 1):
        assert hardest(top1, runs, count).tolist() == expected
    runs = [wide_batch(mse, np.array([0.3, 0.9, 0.1]), np.ones((3, 1)))]
    assert hardest(mse, runs, 2).tolist() == [0, 1]  # large errors


@pytest.mark.parametrize("batch", ["N", 4])
def test_chosen_samples_are_those_rows_in_any_batches(tmp_path, batch):
    """A fixed batch is filled, as that of the whole data set."""
    text = f"g (float[{batch},3] x) => (float[{batch},3] y) {{ y = Relu (x) }}"
    onnx.save(graphs.parse(f'<ir_version: 9, opset_import: ["": 20]> {text}'), tmp_path / "m.onnx")
    x, labels = np.random.default_rng(0).random((23, 3), np.float32), np.arange(23)
    np.savez(tmp_path / "d.npz", x=x, labels=labels)
    dataset = open_dataset(tmp_path / "d.npz", loading.load(tmp_path / "m.onnx"), limit=21)
    numbers = np.array([0, 3, 4, 5, 9, 16, 20])
    some = choose_samples(dataset, numbers)
    assert (some.samples, dataset.samples) == (7, 21)
    for size in (1, 3, 5, 20):
        batches = list(some.batches(size))
        given = [np.concatenate([b.inputs["x"][: b.size] for b in batches])]
        np.testing.assert_array_equal(given[0], x[numbers])
        assert np.concatenate([b.labels for b in batches]).tolist() == numbers.tolist()
        assert {len(b.inputs["x"]) for b in batches} == {4} or batch == "N"
