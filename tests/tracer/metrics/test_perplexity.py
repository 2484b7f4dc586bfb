"""Perplexity in bits per token, against the cross-entropy of torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.errors import InputError
from tracer.inputs.datasets.batch import Batch
from tracer.metrics import default_metric, find, suited


@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(2, 9), st.integers(0, 99),
    st.sampled_from([1.0, 50.0, 1e4]),
)  # fmt: skip
def test_the_score_is_the_cross_entropy_of_torch(rows, tokens, vocabulary, seed, size):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((rows, tokens, vocabulary)) * size).astype(np.float32)
    labels = rng.integers(0, vocabulary, (rows, tokens))
    scores = find("perplexity").scores({"logits": logits}, labels)
    nats = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits).double().movedim(2, 1), torch.from_numpy(labels), reduction="none"
    )
    np.testing.assert_allclose(scores, nats.numpy().mean(1) / np.log(2), rtol=1e-9, atol=1e-9)


def test_equal_logits_need_the_bits_of_the_vocabulary():
    metric = find("perplexity")
    scores = metric.scores({"logits": np.zeros((2, 3, 256))}, np.full((2, 3), 7))
    assert metric.value(scores) == pytest.approx(8)
    assert not metric.higher_is_better


def test_it_is_the_default_for_the_next_tokens():
    batch = Batch({}, 2, np.zeros((2, 3), np.int64))
    assert default_metric(batch, np.zeros((2, 3, 5))) is find("perplexity")
    assert default_metric(batch, np.zeros((2, 4, 5))) is None


@pytest.mark.parametrize("name", ["agreement", "channel-noise"])
def test_classes_and_channels_of_logits_are_those_of_the_vocabulary(name):
    ours, theirs = np.random.default_rng(0).standard_normal((2, 4, 6, 9))
    batch = Batch({"input_ids": np.zeros((4, 6), np.int64)}, 4, np.zeros((4, 6), np.int64))
    metric = suited(find(name), batch, ours)
    of = lambda metric: metric.scores({"logits": ours}, {"logits": theirs})  # noqa: E731
    np.testing.assert_array_equal(of(metric), of(find(f"{name}@2")))
    assert metric.name == name
    if name == "agreement":
        same = ours.argmax(2) == theirs.argmax(2)
        np.testing.assert_allclose(of(metric), same.mean(1))
        assert metric.predictions({"logits": ours}).shape == (4, 6)
    signals = Batch({"x": np.zeros((4, 6), np.float32)}, 4)
    assert suited(find(name), signals, ours) is find(name)
    assert default_metric(Batch(batch.inputs, 4), ours).name == "agreement"
    assert default_metric(signals, ours).name == "noise"


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros((2, 5)), np.zeros(2, np.int64), "are not the next tokens"),
        (np.zeros((2, 3, 5)), np.zeros((2, 4), np.int64), "are not the next tokens"),
        (np.zeros((2, 3, 5)), np.zeros((2, 3)), "are not the next tokens"),
        (np.zeros((2, 3, 5)), np.full((2, 3), 5), "the output has 5 logits"),
    ],
)
def test_labels_that_are_no_next_tokens_are_refused(logits, labels, message):
    with pytest.raises(InputError, match=message):
        find("perplexity").scores({"logits": logits}, labels)
