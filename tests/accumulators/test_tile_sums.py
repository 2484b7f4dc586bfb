"""Sums in float tiles against the oracle: widths to 53, large operands, every instruction set."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tracer.accumulators.engine import oracle, tile_sums
from tracer.accumulators.engine.tile_sums import Factors, SumLanes, checked, program
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.partial_sums import Tally

ROOT = Path(__file__).parents[2]


def check(left, right, bias, accumulator, bits):
    """Compares values, events, counts and extremes in floats of `bits` with the oracle's."""
    terms = Terms(left.shape[1])
    matrices, case = checked(left, right, bias, terms), (left, right, bias, terms, accumulator)
    exact, clipped = oracle.observe(*case), oracle.emulate(*case)
    plan = program(accumulator.order, terms)
    lanes = SumLanes(matrices, plan, accumulator)
    factors = Factors.of(lanes, plan, bits)
    columns = tile_sums.of_matrix(matrices, plan.sequence)
    values, events = (np.empty(matrices.shape, np.int64) for _ in range(2))
    factors.clip(columns, values, None)
    np.testing.assert_array_equal(values, clipped.values)
    factors.clip(columns, values, events)
    np.testing.assert_array_equal(values, clipped.values)
    np.testing.assert_array_equal(events, clipped.events)
    if lanes.exact_bits not in range(1, bits + 1):
        return
    low, high = accumulator.range
    outside = np.count_nonzero(clipped.events)
    lasting = np.count_nonzero((exact.final < low) | (exact.final > high))
    changes = np.count_nonzero(clipped.values != exact.final)
    for rare in (False, True):
        counts = factors.count(columns, values, None, rare)
        assert counts.tolist() == [outside, lasting, clipped.events.sum(), changes]
        np.testing.assert_array_equal(values, clipped.values)
        values[...] = 0
    mine, theirs = (Tally.empty(len(left), accumulator) for _ in range(2))
    mine.take(slice(None), factors.tally(columns, values, None))
    np.testing.assert_array_equal(values, clipped.values)
    theirs.take(slice(None), theirs.of(exact, clipped))
    for name, expected in theirs.arrays().items():
        np.testing.assert_array_equal(mine.arrays()[name], expected, name)
    outs = [np.empty(matrices.shape, np.int64) for _ in range(3)]
    factors.observe(columns, *outs)
    for mine, theirs in zip(outs, (exact.final, exact.low, exact.high), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def products(seed, rows, depth, columns, sizes):
    """Operands up to 2 to the powers of `sizes`, and a bias of the size of a product."""
    random = np.random.default_rng(seed)
    left = random.integers(-(2 ** sizes[0]), 2 ** sizes[0], (rows, depth))
    right = random.integers(-(2 ** sizes[1]), 2 ** sizes[1], (depth, columns))
    return left, right, random.integers(-(2 ** sum(sizes)), 2 ** sum(sizes), rows)


@pytest.mark.long
@examples(40)
@given(
    st.integers(0, 2**32),
    st.tuples(st.integers(1, 20), st.integers(1, 60), st.integers(1, 140)),
    st.tuples(st.integers(0, 23), st.integers(0, 23)),
    st.integers(-6, 5),
    st.sampled_from(["saturate", "symmetric"]),
)
def test_sums_are_those_of_the_oracle(seed, shape, sizes, near, overflow):
    """Widths near those that the sums need, where most is decided."""
    case = products(seed, *shape, sizes)
    width = int(np.clip(sum(sizes) + np.log2(shape[1]) / 2 + near, 2, 53))
    accumulator = Accumulator(width, overflow)
    terms = Terms(shape[1])
    plan = program(accumulator.order, terms)
    bits = SumLanes(checked(*case, terms), plan, accumulator).limited_bits
    assert bits
    check(*case, accumulator, bits)


@pytest.mark.parametrize("bits", [22, 23, 24])
@pytest.mark.parametrize("overflow", ["saturate", "symmetric"])
def test_products_beyond_what_float32_holds_are_limited_exactly(bits, overflow):
    left, right, bias = products(3, 9, 40, 70, (22, 22))
    left[:, ::2] //= 1 << 21  # small terms in between, which rounding would lose
    right[::2] //= 1 << 12
    check(left, right, bias // 4, Accumulator(bits, overflow), 32)


def test_many_terms_pass_from_panel_to_panel():
    left, right, bias = products(4, 13, 1000, 90, (5, 4))
    for bits in (10, 12, 14):
        check(left, right, bias, Accumulator(bits), 32)
        check(left, right, bias, Accumulator(bits), 64)


ZEROS = (np.zeros((2, 3), np.int64), np.zeros((3, 9), np.int64), np.zeros(2, np.int64))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("overflow", ["saturate", "symmetric"])
def test_sums_of_zeros_never_leave_the_range(overflow, bits):
    check(*ZEROS, Accumulator(8, overflow), bits)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names x86 processors")
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("processor", "features", "says"),
    [
        ("x86-64", "+sse2", "SSE2, min and max"),
        ("ivybridge", "+avx", "AVX, min and max"),
        ("haswell", "+avx,+avx2,+fma", "AVX2, min and max"),
    ],
)
def test_older_processors_compute_the_same(processor, features, says):
    program = (
        "from tests.accumulators.test_tile_sums import *\n"
        "from tracer.interpreter.kernels.machine_code import instruction_set\n"
        "for bits in (10, 13, 24):\n"
        "    check(*products(bits, 7, 50, 45, (7, 8)), Accumulator(bits), 32)\n"
        "check(*products(1, 7, 50, 45, (20, 20)), Accumulator(40), 64)\n"
        "test_products_beyond_what_float32_holds_are_limited_exactly(24, 'saturate')\n"
        "for bits in (32, 64):\n"
        "    check(*ZEROS, Accumulator(8), bits)\n"
        "print(instruction_set())"
    )
    environment = {**os.environ, "NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": features}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == says, done.stderr
