"""Sums gathered from images and counted in one pass, against the oracle on numpy's patches."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.patches import patches
from tests.examples import at_night, examples
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine import oracle
from tracer.accumulators.engine.integer_arithmetic import Integers
from tracer.accumulators.engine.node_pass import PaddedImages, from_blocks
from tracer.accumulators.engine.sum_runner import (
    Counts,
    Gathered,
    OverflowCounter,
    Reduction,
    SumRunner,
)
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.spec.policy import parse_policy
from tracer.accumulators.statistics.partial_sums import Tally
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import compiled, parallel
from tracer.interpreter.numeric.windows import window

MODELS = Path(__file__).parents[2] / "models"


@st.composite
def accumulators(draw):
    return Accumulator(
        draw(st.integers(6, 26)),
        draw(st.sampled_from(["saturate", "symmetric"])),
        named(draw(st.sampled_from(["sequential", "sequential", "channelwise", "tree"]))),
        convention=draw(st.sampled_from(["twos-complement", "magnitude"])),
    )


@st.composite
def convolutions(draw):
    """Images, kernels, a bias, and the windows."""
    rank, random = draw(st.integers(1, 2)), np.random.default_rng(draw(st.integers(0, 2**32)))
    kernel, strides, dilations = (
        tuple(draw(st.integers(1, most)) for _ in range(rank)) for most in (3, 3, 2)
    )
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    size = [draw(st.integers(5, 20)) for _ in range(rank)]
    channels, maps = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    x = random.integers(-100, 156, (draw(st.integers(1, 3)), channels, *size)).astype(np.int16)
    w = random.integers(-128, 128, (maps, channels, *kernel)).astype(np.int16)
    bias = draw(st.none() | st.just(random.integers(-3000, 3000, maps)))
    return x, w, bias, window(size, kernel, strides, pads, dilations, "NOTSET")


def expected(case):
    """The counts of an OverflowCounter, and the sums that it writes."""
    exact, clipped = oracle.observe(*case).final, oracle.emulate(*case)
    low, high = case[-1].range
    lasting = np.count_nonzero((exact < low) | (exact > high))
    outside = np.count_nonzero(clipped.events)
    changed = clipped.values != exact
    counts = Counts(
        outside, outside - lasting, lasting, clipped.events.sum(), np.count_nonzero(changed)
    )
    return counts, clipped.values


def running(kind, accumulator, rows, terms, bias):
    runner = kind(accumulator)
    runner.begin(Reduction(len(rows), terms, (-100, 155), (-128, 127), rows, bias))
    return runner


@examples(150)
@given(convolutions(), accumulators(), st.sampled_from([0, 5]), st.integers(1, 2))
def test_windows_are_summed_as_by_the_oracle(convolution, accumulator, fill, threads):
    x, w, bias, slid = convolution
    rows = w.reshape(len(w), -1)
    terms = Terms(x.shape[1], slid.kernel)
    columns = PaddedImages.of(Integers(x, -100, 155, padding=fill), slid).columns(1, len(w))
    case = (rows, patches(x, slid, fill).astype(np.int64), bias, terms, accumulator)
    counter = running(OverflowCounter, accumulator, rows, terms, bias)
    out = np.full((len(x), len(w), *slid.out), 77, np.int64)
    with parallel.threads(threads):
        done = counter.sum_gathered(Gathered(rows, columns, bias, terms), out)
    if not done:
        assert str(accumulator.order) != "sequential"
        assert (out == 77).all()
        return
    counts, values = expected(case)
    assert counter.counts == counts
    by_channel = np.moveaxis(out, 1, 0).reshape(len(w), -1)
    np.testing.assert_array_equal(by_channel, values)


@examples(60)
@given(convolutions(), st.integers(1, 2))
def test_wide_sums_are_tallied_as_those_of_the_oracle(convolution, threads):
    x, w, bias, slid = convolution
    rows, accumulator = w.reshape(len(w), -1), Accumulator(40)
    terms = Terms(x.shape[1], slid.kernel)
    columns = PaddedImages.of(Integers(x, -100, 155), slid).columns(1, len(w))
    runner = running(SumRunner, accumulator, rows, terms, bias)
    out = np.empty((len(x), len(w), *slid.out), np.int64)
    with parallel.threads(threads):
        assert runner.sum_gathered(Gathered(rows, columns, bias, terms), out)
    wide = patches(x, slid, 0).astype(np.int64)
    exact = oracle.observe(rows, wide, bias, terms, accumulator)
    tally = Tally.empty(len(w), accumulator)
    clipped = oracle.emulate(rows, wide, bias, terms, accumulator)
    tally.take(slice(0, len(w)), tally.of(exact, clipped))
    assert runner.tally == tally


@examples(60)
@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 90), accumulators(), st.data())
def test_rows_are_summed_as_by_the_oracle(count, width, depth, accumulator, data):
    """Numbers as stored, minus a zero point; terms that are neighbours, or anywhere in a row."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    a = random.integers(-100, 156, (count, depth)).astype(np.int16)
    weights = random.integers(-128, 128, (width, depth)).astype(np.int16)
    bias = random.integers(-3000, 3000, width)
    terms, out = Terms(depth), np.empty((count, width), np.int64)
    counter = running(OverflowCounter, accumulator, weights, terms, bias)
    kind, shift = data.draw(st.sampled_from([(np.int16, 0), (np.int8, -28), (np.uint8, 100)]))
    rows = Integers((a + shift).astype(kind)[:, None], -100, 155, shift=shift)
    stored = from_blocks(rows, slice(0, 1), width)
    start, stop = sorted(data.draw(st.integers(0, depth)) for _ in range(2))
    order = np.arange(depth)
    order[start:stop] = random.permutation(order[start:stop])
    columns, a = replace(stored, columns=replace(stored.columns, offsets=order)), a[:, order]
    if counter.sum_gathered(Gathered(weights, columns, bias, terms), out):
        counts, values = expected((weights, a.T.astype(np.int64), bias, terms, accumulator))
        assert counter.counts == counts
        np.testing.assert_array_equal(out.T, values)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("model", ["lenet/lenet", "resnet_cifar/resnet20"])
@pytest.mark.parametrize("bits", at_night([11, 14, 17], but=[11]))
def test_a_network_is_that_of_the_passes_of_numpy(monkeypatch, model, bits):
    """Sums block by block, quantised and restored step by step, give the same bits."""
    loaded = loading.load(MODELS / f"{model}.int8.onnx")
    x = np.random.default_rng(bits).random((3, 3, 32, 32), np.float32)

    def run():
        emulation = AccumulatorEmulation(loaded, parse_policy(f"*={bits}"))
        outputs = Interpreter(loaded, wrap_kernel=emulation.wrap).run(
            None, {loaded.inputs[0].name: x}
        )
        counters = emulation.new_runners({}, OverflowCounter)
        with emulation.using(counters):
            again = Interpreter(loaded, wrap_kernel=emulation.wrap).run(
                None, {loaded.inputs[0].name: x}
            )
        np.testing.assert_array_equal(again[0], outputs[0])
        return outputs[0], {key: counter.counts for key, counter in counters.items()}

    by_kernels, counts = run()
    assert any(count.overflow_outputs for count in counts.values())
    monkeypatch.setattr(SumRunner, "sum_gathered", lambda *_: False)
    monkeypatch.setattr(compiled, "takes_quantization", lambda *_: False)
    plain, expected = run()
    np.testing.assert_array_equal(by_kernels, plain)
    assert counts == expected


def test_a_bias_that_changes_is_not_taken_for_the_one_before():
    """A runner reuses prepared rows only for the same rows and bias."""
    a, weights = np.ones((4, 3), np.int16), np.ones((2, 3), np.int16)
    counter = running(OverflowCounter, Accumulator(6), weights, Terms(3), np.zeros(2, np.int64))
    columns = from_blocks(Integers(a[:, None], 0, 1), slice(0, 1), 2)
    out = np.empty((4, 2), np.int64)
    for bias in ([0, 0], [40, 0], [0, 40]):
        shift = np.array(bias)
        assert counter.sum_gathered(Gathered(weights, columns, shift, Terms(3)), out)
        case = (weights, a.T.astype(np.int64), shift, Terms(3), Accumulator(6))
        np.testing.assert_array_equal(out.T, expected(case)[1])
