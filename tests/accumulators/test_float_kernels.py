"""The compiled kernels of float sums, bit by bit against their definition in numpy."""

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.floats import casting, compiled_sums, oracle
from tracer.accumulators.floats.casting import State, cast, odd_sum, paired
from tracer.accumulators.spec.block_fma import block_fma
from tracer.accumulators.spec.float_accumulator import float_accumulator, float_format
from tracer.accumulators.spec.operand_format import BLOCKS as BLOCK_SIZES
from tracer.errors import UsageError
from tracer.interpreter.numeric import parallel

ACCUMULATORS = [
    "fp16", "bf16", "fp32", "fp8-e4m3", "fp8-e5m2(saturate)", "fp8-e4m3fnuz", "e4m7:10", "e6m9",
    "fp16(rz)", "bf16(floor)", "fp16(sr=3)", "fp16(fused)", "e6m9(fused,rz)", "bf16(fused,sr=1)",
    "fp16(floor,fused)", "fp16(product=fp32)", "e5m4(product=fp8-e4m3)", "fp16(flush)",
    "e6m9(chunk=8,sr=7)", "e4m7f:10(rz,no-subnormals,saturate,product=e4m7f:12,chunk=16)",
    "fp8-e5m2(flush,fused)",
]  # fmt: skip
BLOCKS = [
    "bfma(4,23)", "bfma(8,24,fp32,least=-132)", "bfma(16,25,fp16)", "bfma(32,13,e8m13)",
    "bfma(16,25,fp32,split)", "bfma(16,25,fp16,split,operands=fp8-e5m2)", "bfma(5,7,fp32,rne)",
    "bfma(32,13,e8m13,operands=fp8-e4m3,promote=32)", "bfma(4,24,operands=tf32)",
    "bfma(1,23,bf16)", "bfma(8,24,fp16,least=-20)",
]  # fmt: skip
ODD = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, 6e-8])


def operands(seed, rows, depth, columns, spread, odd, form):
    """Numbers of magnitudes far apart, some of them 0, not finite or extreme."""
    random = np.random.default_rng(seed)

    def numbers(*shape):
        values = random.normal(size=shape) * np.exp2(random.integers(-spread, 3, shape))
        return np.where(random.random(shape) < odd, random.choice(ODD, shape), values)

    sides = (cast(numbers(*shape), form) for shape in ((rows, depth), (depth, columns)))
    start = numbers(rows, 1).astype(np.float32)
    return [each.astype(np.float64) for each in (*sides, np.repeat(start, columns, axis=1))]


def sequential(left, right, start, accumulator, seed, indices):
    """The sums of float accumulators, as `compiled_sums.sequential` describes them."""
    outputs = casting.draw_words(casting.draw_key(accumulator.rounding.seed, seed), indices)
    depth, state, rounding = left.shape[1], State.beginning(start), accumulator.rounding.name

    def put(values, form, step):
        """`values` in a format; the state notes which were outside its range."""
        random = casting.draws_at_step(outputs, step) if rounding == "sr" else None
        return state.put(values, form, rounding, accumulator.saturates, random)

    size = accumulator.chunk or max(depth, 1)
    total = put(start, accumulator.format, 2 * depth)
    for number, first in enumerate(range(0, depth, size)):
        value = np.zeros_like(start) if accumulator.chunk else total
        for k in range(first, min(first + size, depth)):
            exact = left[:, k, None] * right[None, k]
            product = exact
            if accumulator.product_format is not None:
                product = put(exact, accumulator.product_format, 2 * k)
            after = put(odd_sum(value, product), accumulator.format, 2 * k + 1)
            state.count(exact, after == value)
            value = after
        if accumulator.chunk:
            value = put(odd_sum(total, value), accumulator.format, 2 * depth + 1 + number)
        total = value
    state.values = total
    return state


def assert_same(got, want):
    for mine, theirs in zip(astuple(got), astuple(want), strict=True):
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(np.signbit(mine) & (mine == 0), False)


CASES = st.fixed_dictionaries({
    "seed": st.integers(0, 9999), "rows": st.integers(1, 3), "depth": st.integers(0, 70),
    "columns": st.integers(1, 20), "spread": st.integers(0, 30),
    "odd": st.sampled_from([0, 0, 0, 0.05]),
})  # fmt: skip

NO_TERMS = {"seed": 843, "rows": 1, "depth": 0, "columns": 1, "spread": 0, "odd": 0.05}
"""A sum that begins with -0, and has no terms."""


@examples(250)
@given(
    spelling=st.sampled_from(ACCUMULATORS), form=st.sampled_from(["fp32", "fp16", "bf16"]),
    case=CASES,
)  # fmt: skip
@example(spelling="fp16", form="fp32", case=NO_TERMS)
def test_sums_term_after_term(spelling, form, case):
    left, right, start = operands(**case, form=float_format(form))
    indices = np.arange(start.size).reshape(start.shape)
    arguments = left, right, start, float_accumulator(spelling), 11, indices
    with np.errstate(all="ignore"):
        assert_same(compiled_sums.sequential(*arguments), sequential(*arguments))


SINGLES = ["fp16", "bf16", "fp8-e5m2", "e6m9", "e8m10", "e5m4(product=fp8-e4m3)"]
SINGLE_BLOCKS = [
    "bfma(4,23)", "bfma(8,24,fp32,least=-132)", "bfma(5,7,fp32,rne)", "bfma(4,24,operands=bf16)",
    "bfma(3,25,fp32,rne,operands=tf32)", "bfma(16,13,operands=fp8-e4m3,least=-9)",
]  # fmt: skip
NARROW = st.fixed_dictionaries({
    "seed": st.integers(0, 9999), "rows": st.integers(1, 5), "depth": st.integers(0, 70),
    "columns": st.integers(1, 40), "spread": st.integers(0, 12), "odd": st.just(0),
})  # fmt: skip


@examples(200)
@given(
    spelling=st.sampled_from(SINGLES), form=st.sampled_from(["fp32", "fp16", "bf16"]), case=NARROW
)  # fmt: skip
def test_sums_term_after_term_in_float32_lanes(spelling, form, case):
    left, right, start = operands(**case, form=float_format(form))
    zeros = np.random.default_rng(case["seed"]).random(right.shape) < 0.4
    right, accumulator = np.where(zeros, 0, right), float_accumulator(spelling)
    start *= 2.0 ** (accumulator.format.least_exponent * (case["seed"] % 2))
    factors = compiled_sums.Factors.of(left, right)
    got = compiled_sums.single_sequential(factors, start[:, :1], accumulator, 2.0**15)
    assert got is not None
    indices = np.arange(start.size).reshape(start.shape)
    want = sequential(left, right, start, accumulator, 1, indices)
    if not want.overflowed.any():
        assert_same(got, want)


@examples(200)
@given(spelling=st.sampled_from(SINGLE_BLOCKS), case=NARROW)
def test_block_multiply_adds_in_float32_lanes(spelling, case):
    accumulator = block_fma(spelling)
    left, right, start = operands(**case, form=accumulator.operands)
    got = compiled_sums.single_blocks(left, right, start[:, :1], accumulator)
    assert got is not None
    assert_same(got, oracle.blocks(left, right, start, accumulator))


@examples(250)
@given(spelling=st.sampled_from(BLOCKS), case=CASES)
def test_block_multiply_adds(spelling, case):
    accumulator = block_fma(spelling)
    arguments = *operands(**case, form=accumulator.operands), accumulator
    with np.errstate(all="ignore"):
        assert_same(compiled_sums.blocks(*arguments), oracle.blocks(*arguments))


SCALED = [
    "bfma(64,35,operands=nvfp4,group=16)", "bfma(64,35,operands=mxfp4,group=16)",
    "bfma(32,13,operands=mxfp4,group=16,least=-9)", "bfma(32,25,operands=mxfp8-e4m3,least=-133)",
    "bfma(8,25,fp16,operands=mxfp6-e2m3)", "bfma(5,7,rne,operands=mxfp8-e5m2)",
    "bfma(32,13,e8m13,operands=fp8-e4m3(tiles),promote=128)",
]  # fmt: skip


@examples(150)
@given(
    spelling=st.sampled_from(SCALED), seed=st.integers(0, 9999), rows=st.integers(1, 3),
    depth=st.integers(0, 300), columns=st.integers(1, 9), spread=st.integers(0, 20),
    odd=st.sampled_from([0, 0, 0, 0.1]),
)  # fmt: skip
def test_block_multiply_adds_with_scales(spelling, seed, rows, depth, columns, spread, odd):
    accumulator, random = block_fma(spelling), np.random.default_rng(seed)
    block = BLOCK_SIZES[accumulator.scaling]

    def numbers(*shape):
        elements = cast(random.normal(size=shape) * 3, accumulator.operands, saturates=True)
        scales = np.exp2(random.integers(-spread, spread + 1, (shape[0], -(-shape[1] // block))))
        if accumulator.scaling == "nvfp4":
            scales = cast(scales * random.normal(size=scales.shape), float_format("fp8-e4m3"))
        scales = np.where(random.random(scales.shape) < odd, np.nan, scales)
        return paired(elements, np.repeat(scales, block, 1)[:, : shape[1]].astype(np.float32))

    start = np.repeat(random.normal(size=(rows, 1)).astype(np.float32), columns, axis=1)
    left, right = numbers(rows, depth), numbers(columns, depth).T
    arguments = left, right, start.astype(np.float64), accumulator
    with np.errstate(all="ignore"):
        assert_same(compiled_sums.blocks(*arguments), oracle.blocks(*arguments))


def test_operands_of_a_block_that_are_in_another_format_are_refused():
    operands = np.float32([[1, 1 + 2.0**-11]]), np.float32([[1], [70000]])
    with pytest.raises(UsageError, match=r"1 operands of bfma\(8,24,fp32\) are no numbers of fp16"):
        sum_products(*operands, None, block_fma("bfma(8,24)"))
    sum_products(*operands, None, block_fma("bfma(8,24,operands=fp32)"))


@pytest.mark.parametrize("spelling", ["fp16(sr=3)", "bfma(16,25)"])
def test_threads_and_blocks_of_columns_give_the_same_sums(spelling):
    accumulator = (block_fma if spelling.startswith("b") else float_accumulator)(spelling)
    left, right, start = operands(5, 9, 40, 700, 5, 0, float_format("fp16"))
    with parallel.threads(1):
        want = sum_products(left, right, start[:, 0], accumulator, 2)
    with parallel.threads(2):
        got = sum_products(left, right, start[:, 0], accumulator, 2)
        few = [sum_products(left, right[:, c : c + 5], start[:, 0], accumulator, 2, 9 * c)
               for c in (0, 5, 695)]  # fmt: skip
    for name in ("values", "overflowed", "swamped", "terms", "exact"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
        columns = np.concatenate([getattr(each, name) for each in few], axis=1)
        whole = getattr(want, name)[:, [*range(10), *range(695, 700)]]
        np.testing.assert_array_equal(columns, whole)
