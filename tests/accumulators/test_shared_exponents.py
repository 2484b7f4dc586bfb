"""Blocks that share an exponent, in integer accumulators, against loops in Python's numbers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.accumulators.nodes import model, narrowed, plain
from tests.accumulators.patches import patches
from tests.interpreter.models import quick
from tracer.accumulators.spec.operand_format import FixedPoint, formats
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import InputError, ModelError, UsageError
from tracer.interpreter.numeric.windows import window

LENET = "models/lenet/lenet.onnx"


def shared(numbers, bits):
    """The integers of a block, and their step: the largest magnitude has all but the sign bit."""
    largest = max(abs(Fraction(float(each))) for each in numbers)
    step = Fraction(2) ** -(bits - 2)
    while largest >= 2 * step * 2 ** (bits - 2):
        step *= 2
    while largest and largest < step * 2 ** (bits - 2):
        step /= 2
    top = 2 ** (bits - 1) - 1
    return [min(max(round(Fraction(float(each)) / step), -top - 1), top) for each in numbers], step


def clip(value, bits):
    return min(max(value, -(1 << bits - 1)), (1 << bits - 1) - 1)


def product(left, right, blocks, bits, width):
    """The sum of products of two rows, and its events: integers in blocks, added by float32."""
    total, events = np.float32(0), 0
    for block in blocks:
        (a, step), (b, other) = (shared(row[block], n) for row, n in
                                 zip((left, right), bits, strict=True))  # fmt: skip
        inside = 0
        for x, y in zip(a, b, strict=True):
            exact, inside = inside + x * y, clip(inside + x * y, width)
            events += exact != inside
        total = np.float32(total + np.float32(inside) * np.float32(float(step * other)))
    return total, events


def cuts(depth, size):
    return [slice(first, first + size) for first in range(0, depth, size)]


@quick
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.integers(2, 12),
    st.integers(1, 8),
)  # fmt: skip
def test_a_block_shares_the_exponent_of_its_largest_number(numbers, bits, size):
    q, steps = FixedPoint(bits, 0).shared(np.array(numbers, np.float32), size)
    for block, cut in enumerate(cuts(len(numbers), size)):
        expected, step = shared(numbers[cut], bits)
        assert q[block, : len(expected)].tolist() == expected
        assert not q[block, len(expected) :].any()
        assert not any(expected) or steps[block] == step


@pytest.mark.parametrize("width", [9, 12, 32])
@pytest.mark.parametrize("op", ["Gemm", "MatMul"])
def test_a_matrix_product(op, width):
    random = np.random.default_rng(width)
    x, w = (random.normal(0, 3, shape).astype(np.float32) for shape in ((3, 37), (2, 37)))
    bias = random.normal(0, 2, 2).astype(np.float32) * (op == "Gemm")
    gemm = "y = Gemm <transB = 1, alpha = 0.5> (x, w, b)"
    matmul = "v = Transpose (w) y = MatMul (x, v)"
    body = f"(float[3,37] x) => (float[r,c] y) {{ {gemm if op == 'Gemm' else matmul} }}"
    policy = parse_policy(f"{op}={width}", "8:block(16)/5:block(16)")
    proto = model(body, w=w, b=bias)
    output, narrowing = narrowed(proto, policy, x)
    blocks = cuts(37, 16)
    both = np.array([[product(row, column, blocks, (8, 5), width) for column in w] for row in x])
    sums, events = both[..., 0].astype(np.float32), both[..., 1].sum(0)
    scale = np.float32(0.5 if op == "Gemm" else 1)
    np.testing.assert_array_equal(output, scale * sums + bias)
    (kept,) = narrowing.accumulations().values()
    assert kept.tally.outputs.tolist() == [9, 9]  # three blocks of each of three rows
    assert kept.tally.saturation_events.tolist() == events.tolist()
    assert (events.sum() > 0) == (width < 32)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_convolution_has_blocks_of_channels_at_each_position(size):
    random = np.random.default_rng(size)
    x = random.normal(0, 3, (2, 5, 6, 4)).astype(np.float32)
    w, bias = random.normal(0, 1, (3, 5, 3, 2)), random.normal(0, 1, 3)
    body = "(float[2,5,6,4] x) => (float[n,m,h,v] y) { y = Conv <pads = [1,0,1,1]> (x, w, b) }"
    proto = model(body, w=w.astype(np.float32), b=bias.astype(np.float32))
    policy = parse_policy("10(overflow=saturate)", f"6:block({size})")
    output, narrowing = narrowed(proto, policy, x)
    slid = window([6, 4], [3, 2], [1, 1], [1, 0, 1, 1], [1, 1], "NOTSET")
    columns = patches(x, slid, 0).reshape(5, 6, -1).transpose(2, 1, 0).reshape(-1, 30)
    rows = w.astype(np.float32).reshape(3, 5, 6).transpose(0, 2, 1).reshape(3, 30)
    blocks = [slice(at + cut.start, min(at + cut.stop, at + 5))
              for at in range(0, 30, 5) for cut in cuts(5, size)]  # fmt: skip
    both = np.array([[product(c, row, blocks, (6, 6), 10) for c in columns] for row in rows])
    expected = both[..., 0].astype(np.float32) + bias.astype(np.float32)[:, None]
    np.testing.assert_array_equal(np.moveaxis(output, 1, 0).reshape(3, -1), expected)
    (kept,) = narrowing.accumulations().values()
    assert kept.tally.saturation_events.tolist() == both[..., 1].sum(1).tolist()


def test_nodes_without_blocks_say_so():
    w = np.ones((2, 1, 3, 3), np.float32)
    proto = model("(float[1,2,4,4] x) => (float[n,m,h,v] y) { y = Conv <group = 2> (x, w) }", w=w)
    with pytest.raises(ModelError, match="share exponents in Conv without groups, Gemm and MatMul"):
        narrowed(proto, parse_policy("Conv=16", "8:block(16)"), np.ones((1, 2, 4, 4), np.float32))


def test_wide_blocks_are_near_the_floats_and_have_bounds():
    random = np.random.default_rng(4)
    x, w = (random.normal(0, 3, shape).astype(np.float32) for shape in ((2, 3, 40), (40, 2)))
    proto = model("(float[2,3,40] x) => (float[n,r,c] y) { y = MatMul (x, w) }", w=w)
    output, narrowing = narrowed(proto, parse_policy("48", "16:block(8)"), x)
    np.testing.assert_allclose(output, plain(proto, x), rtol=1e-3, atol=1e-2)
    (sums,) = narrowing.accumulations().values()
    assert sums.guaranteed is not None and sums.guaranteed <= 16 + 16 + 3
    assert sums.tally.bits_observed.max() <= sums.guaranteed


@pytest.mark.parametrize("body", ["t = Transpose <perm = [0,2,1]> (x) y = MatMul (x, t)",
                                  "y = MatMul (x, v)", "y = MatMul (v, t)"])  # fmt: skip
def test_factors_may_be_computed_and_vectors(body):
    random = np.random.default_rng(7)
    x, v = (random.normal(0, 3, shape).astype(np.float32) for shape in ((2, 3, 20), (20,)))
    turn = "t = Transpose <perm = [0,2,1]> (x) " * ("(v, t)" in body)
    proto = model(f"(float[2,3,20] x) => (float[n] y) {{ {turn}{body} }}", v=v)
    output, _ = narrowed(proto, parse_policy("MatMul=48", "16:block(8)"), x)
    np.testing.assert_allclose(output, plain(proto, x), rtol=1e-3, atol=1e-2)


def test_blocks_are_spelled_as_they_are_read():
    for spelling in ("8:block(16)", "8:block(16)/4:block(16)"):
        assert formats(str(formats(spelling))) == formats(spelling)
        assert str(formats(spelling)) == (spelling if "/" in spelling else f"{spelling}/{spelling}")
    for spelling in ("8:block(0)", "8:block(16)/8:block(8)", "8:block(16)/8:4", "8:block"):
        with pytest.raises(UsageError, match=r"8:block\(16\)/4:block\(16\)"):
            formats(spelling)
    with pytest.raises(InputError, match="share no exponent"):
        FixedPoint(8, 0).shared(np.array([1, np.inf], np.float32), 2)


@pytest.mark.nightly
def test_whole_commands_share_exponents_and_name_the_nodes_that_do_not():
    wide, narrow, short = (
        tracer.interpret(LENET, accumulator=bits, fixed=fixed, batch=2)
        for bits, fixed in ((32, "8:block(16)"), (9, "8:block(16)"), (32, "3:block(16)"))
    )
    assert wide.nodes["overflow_outputs"].sum() == 0 < narrow.nodes["overflow_outputs"].sum()
    assert short.nodes["bits_observed"].max() < wide.nodes["bits_observed"].max()
