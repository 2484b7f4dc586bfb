"""Block multiply-adds that round at random, against the two neighbours of exact fractions."""

from fractions import Fraction
from math import ceil, floor, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.nodes import model, narrowed
from tests.examples import examples
from tests.hardware import exact
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.spec.block_fma import block_fma
from tracer.accumulators.spec.float_accumulator import draws
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import UsageError

DRAWS = 20_000
BLOCKS = {  # spelling, and the bits of fraction and the least exponent of the sum
    "bfma(8,24,fp32,sr=3)": (23, -126), "bfma(8,24,fp16,sr)": (10, -14),
    "bfma(8,24,e8m13,sr=9)": (13, -126), "bfma(8,24,fp16,sr=5,exact)": (10, -14),
}  # fmt: skip


def numbers(random, depth, spread=6):
    sides = random.normal(size=(2, depth)) * np.exp2(random.integers(-spread, 2, (2, depth)))
    return sides.astype(np.float16).astype(np.float32)


def total(spelling, left, right, start):
    """The exact sum of a block, before it is rounded."""
    left, right = ([Fraction(float(x)) for x in side] for side in (left, right))
    if "exact" in spelling:
        return sum((a * b for a, b in zip(left, right, strict=True)), start)
    return exact.block(left, right, start, 24, -14, BLOCKS[spelling][1])


def neighbours(spelling, value):
    """Both numbers of the format beside a sum, and how near the upper one is, from 0 to 1."""
    fraction, least = BLOCKS[spelling]
    unit = Fraction(2) ** (exact.exponent(value, least) - fraction)
    low, high = (turn(value / unit) * unit for turn in (floor, ceil))
    return low, high, (value - low) / unit


@examples(12)
@given(spelling=st.sampled_from(list(BLOCKS)), seed=st.integers(0, 9999))
def test_a_sum_is_a_neighbour_of_the_exact_one_by_its_distance(spelling, seed):
    random = np.random.default_rng(seed)
    left, right = numbers(random, 8)
    start = Fraction(float(np.float16(random.normal())))
    columns = np.repeat(right[:, None], DRAWS, 1)
    values = sum_products(
        left[None], columns, np.float32([start]), block_fma(spelling), seed
    ).values[0]  # fmt: skip
    low, high, share = neighbours(spelling, total(spelling, left, right, start))
    assert set(values.tolist()) <= {float(low), float(high)}
    ups = (values == float(high)).sum() if share else 0
    slack = 5 * sqrt(DRAWS * share * (1 - share)) + DRAWS / 2**24
    assert abs(ups - DRAWS * share) <= slack


@pytest.mark.parametrize("spelling", BLOCKS)
def test_each_block_of_a_chain_draws_for_itself(spelling):
    random = np.random.default_rng(2)
    left, right = numbers(random, 24)
    columns = np.repeat(right[:, None], 4000, 1)
    values = sum_products(left[None], columns, None, block_fma(spelling), 1).values[0]
    reached = {Fraction(0): Fraction(1)}  # sums, and how probable they are
    for part in (slice(0, 8), slice(8, 16), slice(16, 24)):
        after = {}
        for start, probability in reached.items():
            sum_ = total(spelling, left[part], right[part], start)
            low, high, share = neighbours(spelling, sum_)
            after[low] = after.get(low, 0) + probability * (1 - share)
            after[high] = after.get(high, 0) + probability * share
        reached = after
    assert {Fraction(value) for value in values.tolist()} <= set(reached)
    for value, probability in reached.items():
        found = (values == float(value)).sum()
        assert abs(found - 4000 * probability) <= 5 * sqrt(4000 * probability) + 1


def test_draws_depend_on_the_seeds_and_the_output_alone():
    random = np.random.default_rng(4)
    left, right = (random.normal(size=(4, 40)).astype(np.float16) for _ in range(2))
    block = block_fma("bfma(8,24,fp16,sr=3)")
    whole = sum_products(left, right.T, None, block, 5).values
    parts = [sum_products(left, right[k : k + 1].T, None, block, 5, 4 * k).values for k in range(4)]
    np.testing.assert_array_equal(np.hstack(parts), whole)
    for other, seed in ((block, 6), (block_fma("bfma(8,24,fp16,sr=4)"), 5)):
        assert (sum_products(left, right.T, None, other, seed).values != whole).any()


@pytest.mark.parametrize("operands", ["mxfp8-e4m3", "mxfp4"])
def test_scales_of_blocks_may_be_rounded_so_in_a_node(operands):
    """The sums lie within a unit of those that are rounded to nearest."""
    random = np.random.default_rng(5)
    x, w = random.normal(size=(3, 64)), random.normal(size=(64, 5)).astype(np.float32)
    proto = model("(float[3,64] x) => (float[a,b] y) { y = MatMul (x, w) }", w=w)
    spelling = f"bfma(64,25,e8m3,{{}},operands={operands})"
    ours, nearest = (
        narrowed(proto, parse_policy(spelling.format(each)), x.astype(np.float32))[0]
        for each in ("sr=1", "rne")
    )
    unit = np.exp2(np.floor(np.log2(np.abs(nearest))) - 3)
    assert (np.abs(ours - nearest) <= unit).all() and (ours != nearest).any()


def test_the_spelling_is_read_and_written():
    for text, other in {
        "bfma(8,24,fp32,sr=7)": "bfma(8,24,sr=7)", "bfma(8,24,fp32,sr=0)": "bfma(8,24,sr)",
    }.items():  # fmt: skip
        assert str(block_fma(other)) == text
        assert block_fma(text) == block_fma(other)
        assert draws(block_fma(text))
    for text in ("bfma(8,24,floor)", "bfma(8,24,sr=x)", "bfma(8,24,sr=-1)", "bfma(8,24,rz=1)",
                 "bfma(32,13,e8m13,sr,operands=fp8-e4m3(tiles),promote=128)"):  # fmt: skip
        with pytest.raises(UsageError):
            block_fma(text)
