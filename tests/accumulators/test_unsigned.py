"""Unsigned accumulators, from 0 to 2^bits - 1, against loops in Python's integers."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

import tracer
from tests.accumulators.nodes import int8, model, narrowed, uint8
from tests.accumulators.patches import patches
from tests.interpreter.models import quick
from tracer.accumulators.engine import dots
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.spec.policy import parse_policy
from tracer.accumulators.statistics.bounds import guaranteed
from tracer.errors import ModelError, UsageError
from tracer.interpreter.numeric.windows import window
from tracer.whatif.options import WhatIfOptions

LENET = "models/lenet/lenet.int8.onnx"
GEMM = "(uint8[3,40] x) => (int32[r,c] y) { y = MatMulInteger (x, w) }"
CONV = "(uint8[1,5,4,4] x) => (int32[n,m,h,v] y) { y = ConvInteger (x, w) }"


def kept(value, bits, overflow):
    top = (1 << bits) - 1
    if overflow == "wrap":
        return value & top
    return (0 if overflow == "zero" else min(max(value, 0), top)) if value & ~top else value


def summed(products, start, bits, overflow):
    """The sum, the steps that leave the range, and whether some exact sum, and the last one, do."""
    total, exact, events = 0, 0, 0
    outside = False
    for each in (start, *products):
        exact += each
        outside |= not 0 <= exact < 1 << bits
        wide = total + each
        total = kept(wide, bits, overflow)
        events += total != wide
    return total, events, outside, not 0 <= exact < 1 << bits


@quick
@given(
    st.integers(1, 40), st.integers(0, 2**32), st.integers(2, 20),
    st.sampled_from(["saturate", "wrap", "zero"]), st.sampled_from([0, 40, 128]),
)  # fmt: skip
def test_a_sum_stays_from_0_to_the_top(depth, seed, bits, overflow, below):
    random = np.random.default_rng(seed)
    left = random.integers(-below, 128, (2, depth)).astype(np.int8)
    right = random.integers(0, 256, (depth, 3)).astype(np.uint8)
    bias = random.integers(-below * 20, 3000, 2)
    accumulator = Accumulator(bits, overflow, convention="unsigned")
    case = left, right, bias, Terms(depth), accumulator
    expected = np.empty((4, 2, 3), np.int64)
    for row, column in np.ndindex(2, 3):
        products = (left[row].astype(int) * right[:, column].astype(int)).tolist()
        expected[:, row, column] = summed(products, int(bias[row]), bits, overflow)
    exact, clipped = dots.measure(*case)
    for sums in (clipped, dots.final_and_clipped(*case)[1]):
        np.testing.assert_array_equal(sums.values, expected[0])
        np.testing.assert_array_equal(sums.events, expected[1])
    low, high = accumulator.range
    np.testing.assert_array_equal((exact.low < low) | (exact.high > high), expected[2])


@pytest.mark.parametrize("body", [GEMM, CONV])
@pytest.mark.parametrize("overflow", ["saturate", "wrap", "zero"])
@pytest.mark.parametrize("is_signed", [False, True])
def test_a_whole_node_and_its_counts(body, overflow, is_signed):
    """Weights of both signs go below 0, others above the top alone."""
    if body == GEMM:
        x, w = uint8(3, 40), int8(40, 2) if is_signed else uint8(40, 2)
        left, right = w.T, x.T
    else:
        x, w = uint8(1, 5, 4, 4), int8(2, 5, 3, 3) if is_signed else uint8(2, 5, 3, 3)
        slid = window([4, 4], [3, 3], [1, 1], [0] * 4, [1, 1], "NOTSET")
        left, right = w.reshape(2, -1), patches(x, slid, 0)
    bits = 17
    output, narrowing = narrowed(model(body, w=w), parse_policy(f"u17(overflow={overflow})"), x)
    every = np.array([[
        summed((row.astype(int) * column.astype(int)).tolist(), 0, bits, overflow)
        for column in right.T] for row in left])  # fmt: skip
    np.testing.assert_array_equal(np.moveaxis(output, 1, 0).reshape(2, -1), every[..., 0])
    (sums,) = narrowing.accumulations().values()
    counts = sums.tally.overflow(bits)
    assert counts.overflow_outputs.tolist() == every[..., 2].sum(1).tolist()
    assert counts.persistent_outputs.tolist() == every[..., 3].sum(1).tolist()
    assert sums.tally.saturation_events.tolist() == every[..., 1].sum(1).tolist()
    partial = np.cumsum(left.astype(int)[:, None] * right.T.astype(int), -1)
    below = (partial < 0).any((1, 2))
    widths = [65 if is_below else int(most).bit_length()
              for is_below, most in zip(below, partial.max((1, 2)), strict=True)]  # fmt: skip
    assert sums.tally.bits_observed.tolist() == widths
    assert sums.tally.overflow(63).overflow_outputs.sum() == (partial < 0).any(2).sum()
    most = 255 * int(left.astype(int).sum(1).max())
    assert sums.guaranteed == (65 if is_signed else most.bit_length())


@quick
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 9), st.integers(0, 5),
    st.sampled_from(["sequential", "tree", "tiles(2:40)", "tiles(2:u40)"]),
)  # fmt: skip
def test_no_width_less_than_that_of_the_bounds_suffices(weights, most, start, order):
    rows, terms, bias = np.array([weights]), Terms(len(weights)), np.array([start])
    inputs = np.array(list(product([0, most], repeat=len(weights)))).T
    (bits,) = guaranteed(
        rows, 0, most, bias, terms, Accumulator(40, order=order, convention="unsigned")
    ).bits

    def events(width):
        accumulator = Accumulator(width, order=order, convention="unsigned")
        return dots.measure(rows, inputs, bias, terms, accumulator)[1].events.sum()

    assert events(int(bits)) == 0
    assert bits == 2 or events(int(bits) - 1) > 0


@pytest.mark.parametrize(
    "spelling", ["u16", "u63", "u16(overflow=wrap,order=tiles(4:u10),zero_points=after)"]
)
def test_unsigned_widths_are_spelled_as_they_are_read(spelling):
    (entry,) = parse_policy(spelling).accumulators
    assert str(entry.value) == spelling
    assert entry.value.convention == "unsigned"
    assert Accumulator.from_plain(entry.value.to_plain()) == entry.value


def test_a_file_may_set_the_convention_of_two_levels(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('["*"]\naccumulator = "two-level(8,16,12)"\nconvention = "unsigned"\n')
    (entry,) = parse_policy(str(path)).accumulators
    assert str(entry.value) == "u12(order=tiles(16:u8))"


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("u16(overflow=symmetric)", "overflow 'symmetric' of an unsigned accumulator"),
        ("u64", "an accumulator of 64 bits. Widths from 2 to 63 are possible with 'unsigned'"),
        ("u1", r"an accumulator of 1 bit\."),
        ("u16:24", "is not an accumulator"),
    ],
)
def test_what_is_no_unsigned_accumulator_is_refused(spelling, message):
    with pytest.raises(UsageError, match=message):
        parse_policy(spelling)


def test_an_overflow_that_is_an_error_names_no_width_below_0():
    x, w = np.full((1, 10), 5, np.uint8), np.full((10, 1), -2, np.int8)
    proto = model("(uint8[1,10] x) => (int32[r,c] y) { y = MatMulInteger (x, w) }", w=w)
    with pytest.raises(ModelError, match="No unsigned number holds these") as error:
        narrowed(proto, parse_policy("u9(overflow=error)"), x)
    assert "leaves [0, 511]" in str(error.value)
    above = numpy_helper.from_array(np.full((10, 1), 120, np.uint8), "w")
    proto.graph.initializer[0].CopyFrom(above)
    with pytest.raises(ModelError, match="13 bits hold these"):
        narrowed(proto, parse_policy("u9(overflow=error)"), x)


@pytest.mark.nightly
def test_whole_commands_take_unsigned_accumulators():
    sweep = tracer.what_if(LENET, "32,u24,u24(overflow=wrap)", "digits",
                           options=WhatIfOptions(limit=20))  # fmt: skip
    exact, clipped, wrapped = sweep.rows
    assert min(clipped.overflow_outputs, wrapped.overflow_outputs) > exact.overflow_outputs == 0
    assert wrapped.score < exact.score == clipped.score  # ReLU makes 0 of what is below 0
    trace = tracer.interpret(LENET, accumulator="u24(zero_points=after)", batch=2)
    assert (trace.nodes["overflow_outputs"].dropna() > 0).any()
    with pytest.raises(UsageError, match=r"unsigned widths.*Name the accumulators"):
        tracer.what_if(LENET, "8:24", "digits",
                       options=WhatIfOptions(limit=20, range_convention="unsigned"))  # fmt: skip
