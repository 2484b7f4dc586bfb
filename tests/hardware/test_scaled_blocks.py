"""Operands whose blocks share a scale, in tensor cores and in DeepGEMM, against exact fractions."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.accumulators.nodes import narrowed
from tests.examples import examples
from tests.hardware import exact
from tracer.accumulators import hardware
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.floats.casting import paired
from tracer.accumulators.hardware.matrix_cores import NVIDIA
from tracer.accumulators.spec.block_fma import block_fma
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import UsageError

FP4, FP8 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn
CARDS = ("tc:b200", "tc:rtx-blackwell")
GROUPS = {"nvfp4": 16, "mxfp4": 32}
"""Numbers that share a scale; 16 products are a term."""
LEAST_SCALES = {"nvfp4": -6, "mxfp4": -127}
"""Exponents of the least scales, of fp8-e4m3 and E8M0; subnormal ones have the same."""


def numbers(random, depth, dtype, block, scales):
    """Elements (depth,) and the scale of each, one for a block."""
    elements = (2 * random.normal(size=depth)).astype(dtype).astype(np.float32)
    each = random.choice(scales, -(-depth // block)).astype(np.float32)
    return elements, np.repeat(each, block)[:depth]


def fractions(elements, scales):
    return [(Fraction(float(x)), Fraction(float(s)))
            for x, s in zip(elements, scales, strict=True)]  # fmt: skip


def total(accumulator, left, right, start):
    sides = paired(*left)[None], paired(*right)[:, None]
    return sum_products(*sides, np.float32([start]), accumulator).values[0, 0]


def chained(accumulator, left, right, start, **rule):
    value = Fraction(float(start))
    for first in range(0, len(left), accumulator.length):
        part = slice(first, first + accumulator.length)
        block = exact.scaled_block(left[part], right[part], value, accumulator.fraction, **rule)
        value = Fraction(exact.rounded(block, 23, -126, 2**128 - 2**104, False))
    return float(value)


@examples(150)
@given(
    card=st.sampled_from(CARDS), name=st.sampled_from([*GROUPS]), seed=st.integers(0, 9999),
    depth=st.integers(1, 200), spread=st.sampled_from([2, 9, 20]),
)  # fmt: skip
def test_groups_of_16_products_of_fp4_are_those_of_exact_fractions(card, name, seed, depth, spread):
    random = np.random.default_rng(seed)
    scales = np.exp2(random.integers(-spread, spread, 20))
    if name == "nvfp4":  # subnormal and negative ones, too: these count by magnitude
        scales = (random.normal(size=20) * np.exp2(random.integers(-9, 6, 20))).astype(FP8)
    left, right = (numbers(random, depth, FP4, GROUPS[name], scales) for _ in "ab")
    start = np.float32(random.normal() * 2.0 ** random.integers(-spread, spread))
    accumulator = NVIDIA[card][name]
    assert (accumulator.length, accumulator.fraction) == (64, 35)
    rule = {"group": 16, "least_scale": LEAST_SCALES[name]}
    want = chained(accumulator, fractions(*left), fractions(*right), start, **rule)
    assert total(accumulator, left, right, start) == np.float32(want)


MX = {
    "mxfp8-e4m3": (FP8, -6), "mxfp8-e5m2": (ml_dtypes.float8_e5m2, -14),
    "mxfp6-e2m3": (ml_dtypes.float6_e2m3fn, 0), "mxfp6-e3m2": (ml_dtypes.float6_e3m2fn, -2),
}  # fmt: skip


@examples(150)
@given(
    card=st.sampled_from(CARDS), name=st.sampled_from([*MX]), seed=st.integers(0, 9999),
    depth=st.integers(1, 100), spread=st.sampled_from([1, 9, 20]),
)  # fmt: skip
def test_exponents_of_mx_scales_are_added_to_those_of_products(card, name, seed, depth, spread):
    """A subnormal element keeps the least exponent of its format, plus that of the scale."""
    random = np.random.default_rng(seed)
    dtype, least = MX[name]
    scales = np.exp2(random.integers(-spread, spread, 20))
    left, right = (numbers(random, depth, dtype, 32, scales) for _ in "ab")
    left[0][:] = np.where(random.random(depth) < 0.3, left[0] * 2.0**least, left[0]).astype(dtype)
    start = np.float32(random.normal())
    accumulator = NVIDIA[card][name]
    assert (accumulator.length, accumulator.fraction) == (32, 25)
    rule = {"group": 1, "least_operand": least}
    want = chained(accumulator, fractions(*left), fractions(*right), start, **rule)
    assert total(accumulator, left, right, start) == np.float32(want)


def test_a_group_loses_no_bit_that_its_products_would_lose_alone():
    """36 - 36 + 0.25, beside a term 2^35 times as large: alone, 0.25 would be truncated."""
    accumulator = NVIDIA["tc:b200"]["mxfp4"]
    elements = np.float32([6, 6, 0.5] + [0] * 13 + [1] + [0] * 15)
    others = np.float32([6, -6, 0.5] + [0] * 13 + [1] + [0] * 15)
    scales = np.float32([1] * 16 + [2.0**33] + [0] * 15)
    left, right = (elements, scales), (others, np.ones_like(scales))
    large = sum_products(paired(*left)[None], paired(*right)[:, None], None, accumulator)
    assert (large.values[0, 0], large.swamped[0, 0]) == (2.0**33, 0)
    less = block_fma("bfma(64,34,operands=mxfp4,group=16)")
    lost = sum_products(paired(*left)[None], paired(*right)[:, None], None, less)
    assert (lost.swamped[0, 0], lost.terms[0, 0]) == (3, 4)


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "mxfp8-e4m3"])
def test_a_scale_of_nan_gives_nan(name):
    side = np.zeros(64, np.float32), np.ones(64, np.float32)
    scales = side[1].copy()
    assert total(NVIDIA["tc:b200"][name], side, (side[0], scales), 1) == 1
    scales[32:] = np.nan
    got = total(NVIDIA["tc:b200"][name], side, (side[0], scales), 1)
    assert got.view(np.uint32) == 0x7FFFFFFF


def to_tiles(values, square):
    """DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8: scales are maxima by 448."""
    elements, scales = np.empty_like(values), np.empty_like(values)
    step = 128 if square else 1
    for row in range(0, values.shape[0], step):
        for first in range(0, values.shape[1], 128):
            place = slice(row, row + step), slice(first, first + 128)
            scale = np.maximum(np.abs(values[place]).max(), np.float32(1e-4)) / np.float32(448)
            elements[place] = (values[place] / scale).astype(FP8).astype(np.float32)
            scales[place] = scale
    return elements, scales


def by_deepgemm(a, b):
    """Rows a (M, K) times rows b (N, K), each (elements, scales): scaled sums of 128 products."""
    out = np.zeros((len(a[0]), len(b[0])), np.float32)
    for m, n in np.ndindex(out.shape):  # exact, and slow
        value = Fraction(0)
        for first in range(0, a[0].shape[1], 128):
            part = slice(first, first + 128)
            left, right = ([Fraction(float(x)) for x in side[part]] for side in (a[0][m], b[0][n]))
            tile = exact.chain(left, right, 0, 32, 13, -6, (13, -126, 2**128, False))
            scale = float(a[1][m, first] * b[1][n, first])  # rounded to float32
            value += Fraction(tile) * Fraction(scale)
            value = Fraction(exact.rounded(value, 23, -126, 2**128, True))
        out[m, n] = float(value)
    return out


def matmul(weights):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "y")], "g",
        [helper.make_tensor_value_info("x", 1, [None, None])],
        [helper.make_tensor_value_info("y", 1, None)], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.nightly
def test_deepgemm_scales_rows_by_128_and_weights_by_128_x_128():
    random = np.random.default_rng(3)
    x, w = (random.normal(size=shape) * np.exp(random.normal(size=shape))
            for shape in ((3, 300), (300, 140)))  # fmt: skip
    x, w = x.astype(np.float32), w.astype(np.float32)
    x[1, :128] = 1e-6  # below the least magnitude
    output, narrowing = narrowed(matmul(w), parse_policy("deepgemm"), x)
    elements, scales = to_tiles(np.ascontiguousarray(w.T), True)
    some = [0, 77, 127, 128, 139]
    want = by_deepgemm(to_tiles(x, False), (elements[some], scales[some]))
    np.testing.assert_array_equal(output[:, some], want)
    assert narrowing.float_sums[0].tally.operands == "fp8-e4m3(tiles)"
    np.testing.assert_allclose(output, x @ w, atol=0.06 * np.abs(x @ w).max())


def test_scales_of_tiles_of_1_are_those_of_plain_fp8():
    """Sums beside a bias, too: DeepGEMM's first sum is 0, and ours the bias."""
    random = np.random.default_rng(4)
    left, right = (
        random.normal(size=s).astype(FP8).astype(np.float32) for s in ((2, 200), (200, 3))
    )
    device = hardware.presets()["deepgemm"].accumulator
    start = np.float32([1, -2])
    plain = sum_products(left, right, start, device.of("fp8-e4m3"))
    ones = (paired(side, np.ones_like(side)) for side in (left, right))
    np.testing.assert_array_equal(
        sum_products(*ones, start, device.of("fp8-e4m3(tiles)")).values, plain.values
    )


@pytest.mark.parametrize("group", [1, 2])
def test_blocks_of_a_convolution_have_one_scale_each(group):
    """Terms run by kernel position, then channel: each group of 16 is a block of channels."""
    random = np.random.default_rng(5)
    x, w = (
        random.normal(size=s).astype(np.float32) for s in ((2, 40, 4, 4), (6, 40 // group, 2, 2))
    )
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], "y", group=group)], "g",
        [helper.make_tensor_value_info("x", 1, [None] * 4)],
        [helper.make_tensor_value_info("y", 1, None)], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    output, _ = narrowed(proto, parse_policy("tc:b200", operands="nvfp4"), x)
    channels, maps = 40 // group, 6 // group
    whole_w = np.abs(w).max() / np.float32(6 * 448)
    for image, row, column in ((0, 0, 0), (1, 2, 1)):
        whole = np.abs(x[image]).max() / np.float32(6 * 448)
        for number in range(6):
            first = number // maps * channels
            sides = [[], []]
            for position in np.ndindex(2, 2):
                pixel = row + position[0], column + position[1]
                pairs = ((x[image, first : first + channels, *pixel], whole),
                         (w[number][:, *position], whole_w))  # fmt: skip
                for side, (values, factor) in zip(sides, pairs, strict=True):
                    side += to_nvfp4(values, factor)
            value = Fraction(0)
            for begin in range(0, len(sides[0]), 64):
                left, right = (side[begin : begin + 64] for side in sides)
                block = exact.scaled_block(left, right, value, 35, 16, least_scale=-6)
                value = Fraction(exact.rounded(block, 23, -126, 2**128, False))
            want = np.float32(float(value)) * whole * whole_w
            assert output[image, number, row, column] == want


def to_nvfp4(values, factor):
    """Elements and scales of blocks of 16, as fractions; the last block is filled up with 0."""
    values = np.pad(values, (0, -len(values) % 16)).reshape(-1, 16)
    largest = np.abs(values).max(1, keepdims=True)
    scales = (largest / (np.float32(6) * factor)).astype(FP8).astype(np.float32)
    elements = (values / (scales * factor)).astype(FP4).astype(np.float32)
    return fractions(elements.reshape(-1), np.repeat(scales, 16))


@pytest.mark.parametrize(
    ("spelling", "named"),
    [("bfma(16,25,operands=nvfp4)", "groups of 1 products of fp4-e2m1 with scales nvfp4"),
     ("bfma(64,35,group=16)", "a block of operands with scales none"),
     ("bfma(60,35,operands=mxfp4,group=16)", "groups of 16 products"),
     ("bfma(64,35,operands=mxfp8-e4m3,group=16)", "groups of 16 products of fp8-e4m3"),
     ("bfma(32,13,e8m13,operands=fp8-e4m3(tiles))", "a promotion after None products"),
     ("bfma(32,25,operands=mxfp8-e4m3,promote=128)", "a promotion after 128 products"),
     ("bfma(8,24,late,operands=mxfp8-e4m3)", "a block of operands with scales mx, late, chain"),
     ("bfma(8,24,operands=int8)", "'int8' is no format that a block multiply-add knows"),
     ("bfma(8,24,operands=fp8-e4m3(tensor))", "is no format that a block multiply-add knows")],
)  # fmt: skip
def test_blocks_that_do_not_exist_are_named(spelling, named):
    with pytest.raises(UsageError, match=named.replace("(", r"\(").replace(")", r"\)")):
        block_fma(spelling)
