"""Evaluations that use what earlier runs showed, against runs of everything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import graphs
from tests.examples import examples
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import parse_policy
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.whatif.evaluation import local

QUANTISED = """
<ir_version: 9, opset_import: ["": 20]>
residual (float[N,2,6,6] x) => (float[N,10] y) {
  xq = QuantizeLinear (x, s, z)
  xd = DequantizeLinear (xq, s, z)
  w1 = DequantizeLinear (q1, s, z)
  c1 = Conv <pads = [1,1,1,1]> (xd, w1)
  r1 = Relu (c1)
  aq = QuantizeLinear (r1, t, z)
  ad = DequantizeLinear (aq, t, z)
  w2 = DequantizeLinear (q2, s, z)
  c2 = Conv <pads = [1,1,1,1]> (ad, w2)
  sum = Add (c2, r1)
  bq = QuantizeLinear (sum, t, z)
  bd = DequantizeLinear (bq, t, z)
  flat = Flatten (bd)
  w3 = DequantizeLinear (q3, s, z)
  y = Gemm <transB = 1> (flat, w3)
}
"""


@dataclass(frozen=True)
class Batch:
    inputs: dict[str, np.ndarray]


def model():
    random = np.random.default_rng(3)
    weights = {"q1": (3, 2, 3, 3), "q2": (3, 3, 3, 3), "q3": (10, 108)}
    stored = {n: random.integers(-40, 41, shape).astype(np.int8) for n, shape in weights.items()}
    stored |= {"s": np.float32(0.05), "t": np.float32(1.5), "z": np.int8(0)}
    return loading.from_proto(graphs.parse(QUANTISED, **stored))


def batches():
    random = np.random.default_rng(7)
    sizes = (0.02, 0.3, 1, 3, 0.1)
    return [Batch({"x": random.normal(0, s, (4, 2, 6, 6)).astype(np.float32)}) for s in sizes]


def score(outputs, batch, wide):
    return (outputs[0] * np.arange(1, 11)).sum(1) + wide[0][:, 0]


def everything(policy, like=None):
    """Scores, and the statistics of each node, of running all the data."""
    loaded = model()
    emulation = AccumulatorEmulation(loaded, policy)
    interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap)
    wide = Interpreter(
        loaded, wrap_kernel=AccumulatorEmulation(loaded, parse_policy("64", like=like)).wrap
    )
    scores = [
        score(interpreter.run(None, b.inputs), b, wide.run(None, b.inputs)) for b in batches()
    ]
    return float(np.concatenate(scores).mean()), emulation.accumulations()


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("memory", "like"),
    [
        (0, Accumulator(64)),
        (3000, Accumulator(64)),
        (1 << 30, Accumulator(64)),
        (1 << 30, Accumulator(64, "zero", named("lanes(4)"), product_bits=11)),
        pytest.param(3000, Accumulator(64, order=named("tree")), marks=pytest.mark.nightly),
        pytest.param(
            1 << 30,
            Accumulator(64, "wrap", named("channelwise"), bias="last"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            1 << 30, Accumulator(64, "symmetric", named("maddubs")), marks=pytest.mark.nightly
        ),
        pytest.param(1 << 30, Accumulator(64, order=named("sorted")), marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_an_evaluation_is_what_running_everything_gives(memory, like):
    evaluator = local(model(), parse_policy("*=64", like=like), batches, score, memory=memory)
    keys = evaluator.nodes
    assert evaluator.baseline.samples == 20
    for widths in [(64, 64, 64), (16, 64, 12), (11, 13, 14), (9, 9, 9), (12, 10, 12)]:
        bits = dict(zip(keys, widths, strict=True))
        assert evaluator.score(bits).overflows is None
        evaluation = evaluator.evaluate(bits)
        assert evaluator.score(bits, near=bits).score == evaluation.score
        text = ",".join(f"{key}={width}" for key, width in bits.items())
        expected, accumulations = everything(parse_policy(text, like=like), like)
        assert evaluation.score == expected
        for key, sums in accumulations.items():
            overflow = sums.tally.overflow(bits[key])
            mine = evaluation.overflows[key]
            assert mine.outputs == overflow.outputs.sum()
            assert mine.overflow_outputs == overflow.overflow_outputs.sum()
            assert mine.transient_outputs == overflow.transient_outputs.sum()
            assert mine.persistent_outputs == overflow.persistent_outputs.sum()
            assert mine.saturation_events == sums.tally.saturation_events.sum()
            assert mine.outputs_changed == sums.tally.outputs_changed.sum()


@examples(60)
@given(
    st.sampled_from([0, 3000, 12000, 1 << 30]),
    st.lists(st.tuples(*[st.integers(8, 16)] * 3), min_size=2, max_size=6),
)
def test_a_score_is_that_of_an_evaluation_whatever_was_asked_before(memory, path):
    evaluator = local(model(), parse_policy("*=64"), batches, score, memory=memory)
    fresh = local(model(), parse_policy("*=64"), batches, score, memory=0)
    near = None
    for widths in path:
        bits = dict(zip(evaluator.nodes, widths, strict=True))
        assert evaluator.score(bits, near).score == fresh.evaluate(bits).score
        assert evaluator.evaluate(bits) == fresh.evaluate(bits)
        near = bits


def test_a_score_computes_only_what_differs_from_an_earlier_one(monkeypatch):
    """The last node alone is narrowed further: the run begins there."""
    evaluator = local(model(), parse_policy("*=64"), batches, score)
    begun = []
    real = Interpreter.advance

    def advance(self, alive, start, stop=None):
        begun.append(start)
        return real(self, alive, start, stop)

    monkeypatch.setattr(Interpreter, "advance", advance)
    first, second = ({**dict.fromkeys(evaluator.nodes, 9), "Gemm_14": b} for b in (13, 12))
    assert set(first) == set(evaluator.nodes)
    evaluator.score(first)
    assert len({*begun}) > 1
    begun.clear()
    evaluator.score(second, near=first)
    (narrowed,) = [key for key in first if first[key] != second[key]]
    assert {*begun} == {evaluator._node_steps[evaluator.nodes.index(narrowed)]}
    begun.clear()
    evaluator.score(second)
    evaluator.score(dict.fromkeys(evaluator.nodes, 64))
    assert not begun


@pytest.mark.one_in(5)
@pytest.mark.parametrize("threads", [1, 2, 4, 9])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_threads_change_nothing(threads, count):
    """With fewer batches than threads, the threads share a batch."""

    def some():
        return batches()[:count]

    alone, evaluator = (
        local(model(), parse_policy("64"), some, score, threads=n, memory=3000)
        for n in (1, threads)
    )
    assert evaluator.baseline.score == alone.baseline.score
    np.testing.assert_array_equal(evaluator.baseline.needed, alone.baseline.needed)
    for key, sums in evaluator.baseline.accumulations.items():
        assert sums.tally == alone.baseline.accumulations[key].tally
    for widths in [(11, 13, 14), (9, 9, 9)]:
        bits = dict(zip(evaluator.nodes, widths, strict=True))
        assert evaluator.evaluate(bits) == alone.evaluate(bits)


def test_the_baseline_tells_every_width():
    evaluator = local(model(), parse_policy("64"), batches, score)
    _, accumulations = everything(parse_policy("64"))
    for key, sums in evaluator.baseline.accumulations.items():
        for name, array in sums.tally.arrays().items():
            np.testing.assert_array_equal(array, accumulations[key].tally.arrays()[name])
    widest = evaluator.baseline.needed.max(0)
    safe = evaluator.evaluate(dict(zip(evaluator.nodes, widest, strict=True)))
    assert safe.score == evaluator.baseline.score
    assert not any(node.overflow_outputs for node in safe.overflows.values())
    for place, key in enumerate(evaluator.nodes):
        tight = evaluator.evaluate({key: int(widest[place]) - 1})
        assert tight.overflows[key].overflow_outputs > 0
