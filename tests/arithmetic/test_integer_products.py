"""Products of bytes are replayed with onnxruntime's bits, on processors with VNNI or without."""

import numpy as np
import pytest
from onnx import helper

from tests.arithmetic.test_products import check
from tests.examples import at_night
from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import replay_of

F, U, S, WIDE = (np.dtype(kind) for kind in ("float32", "uint8", "int8", "int32"))
ROWS, TERMS, COLUMNS = 5, 37, 9


def make(op_type, operands, domain="", threads=1, **attributes):
    """Makes a kernel of operands (type, shape, value); those without a value are computed."""
    names = [f"x{place}" for place in range(len(operands))]
    inputs = {n: (t, s) for n, (t, s, value) in zip(names, operands, strict=True) if value is None}
    constants = {
        n: np.broadcast_to(np.asarray(value, t), s)
        for n, (t, s, value) in zip(names, operands, strict=True)
        if value is not None
    }
    node = helper.make_node(op_type, names, ["y"], domain=domain, **attributes)
    return Kernel(node, inputs, constants, {"": 21, "com.microsoft": 1}, threads)


def forms(a, b, threads=1, weights=None):
    left, right = (a, (ROWS, TERMS), None), (b, (TERMS, COLUMNS), weights)
    zero_a, zero_b = (a, (), 7), (b, (COLUMNS,), np.arange(COLUMNS))
    scale, scales = (F, (), 0.02), (F, (COLUMNS,), 0.01 + np.arange(COLUMNS) / 70)
    out, bias = ((F, (), 70.7), (a, (), 3)), (WIDE, (COLUMNS,), np.arange(COLUMNS) * 999)
    shift, fused = (F, (COLUMNS,), np.arange(COLUMNS) / 7), ("com.microsoft", threads)
    yield make("MatMulInteger", [left, right, zero_a, zero_b], threads=threads)
    linear = [left, scale, zero_a, right, scales, zero_b]
    yield make("QLinearMatMul", [*linear, *out], threads=threads)
    yield make("MatMulIntegerToFloat", [left, right, scale, scales, zero_a, zero_b, shift], *fused)
    if a == U:
        real = (F, (ROWS, TERMS), None)
        yield make("DynamicQuantizeMatMul", [real, right, scales, zero_b, shift], *fused)
    yield make("QGemm", [*linear, bias, *out], *fused)
    yield make("QGemm", [*linear, bias], *fused, alpha=0.7)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("threads", at_night([1, 2], but=[2]))
@pytest.mark.parametrize(("a", "b"), [(U, S), (U, U), (S, S)])
def test_integer_products_have_the_bits_of_onnxruntime(a, b, threads):
    for kernel in forms(a, b, threads):
        check(kernel)


@pytest.mark.parametrize("a", [U, S])
def test_pairs_that_do_not_saturate_are_exact(a):
    for kernel in forms(a, S, weights=np.arange(COLUMNS) - 4):
        replay = replay_of(kernel.node.domain, kernel.op_type)
        inputs = kernel.draw(np.random.default_rng(0))
        exact, pairs = (replay.replay(kernel, facts, inputs) for facts in ({}, {"pairs": True}))
        np.testing.assert_array_equal(exact, pairs)


def test_pairs_saturate_at_16_bits():
    operands = [(U, (2, 5), None), (S, (5, 3), None)]
    kernel = make("MatMulInteger", operands)
    inputs = {"x0": np.full((2, 5), 255, np.uint8), "x1": np.full((5, 3), 127, np.int8)}
    inputs["x1"][:, 1] = -128
    sums = replay_of("", "MatMulInteger").replay(kernel, {"pairs": True}, inputs)[0]
    assert (
        sums.tolist()
        == [[2 * 32767 + 255 * 127, -2 * 32768 - 255 * 128, 2 * 32767 + 255 * 127]] * 2
    )
