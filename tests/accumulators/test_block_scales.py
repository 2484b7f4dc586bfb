"""Weights with a scale for each block: sums of blocks against int64, wide against onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

from tests.accumulators.nodes import RANDOM, int8, multiplied, narrowed, uint8
from tests.accumulators.test_sum_operators import by_onnxruntime
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy, parse_policy
from tracer.errors import ModelError

BLOCK = 8
STEPS = (0.01 * np.arange(1, 16).reshape(3, 5)).astype(np.float32)
ZEROS = (np.arange(15).reshape(3, 5) - 7).astype(np.int8)


def blocked(product, w, steps, zeros, axis, middle=""):
    """x, uint8 with step 0.5 and zero point 100, times w in blocks of 8 along an axis."""
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (uint8[4,20] x) => (float[4,5] y) {'
        " xd = DequantizeLinear (x, s, z)"
        f" wb = DequantizeLinear <axis = {axis}, block_size = {BLOCK}> (w, t, v) {middle} {product}"
        " }"
    )
    weights = {"s": np.float32(0.5), "z": np.uint8(100), "t": steps, "w": w, "v": zeros}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in weights.items())
    return proto


def in_blocks(x, w, bits):
    """(blocks, rows, columns): a sum for each block of 8 terms."""
    parts = [slice(first, first + BLOCK) for first in range(0, len(w), BLOCK)]
    return np.stack([multiplied(x[:, part], w[part], bits) for part in parts])


def output_of(sums):
    """Sums of blocks times both scales, one after the other in float32."""
    total = np.zeros(sums.shape[1:], np.float32)
    for block, step in zip(sums, STEPS, strict=True):
        total += block.astype(np.float32) * (0.5 * step.astype(np.float64)).astype(np.float32)
    return total


FORMS = {
    "MatMul": ("y = MatMul (xd, wb)", False, 0, ""),
    "a transposed matrix": ("y = MatMul (xd, wt)", True, 1, "wt = Transpose (wb)"),
    "Gemm": ("y = Gemm <transB = 1, alpha = 2.0> (xd, wb)", True, 1, ""),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bits", [8, 13, 16, 32])
def test_a_block_is_a_sum_of_its_own(form, bits):
    product, turned, axis, middle = FORMS[form]
    x, w = uint8(4, 20), int8(20, 5)
    stored = [each.T.copy() if turned else each for each in (w, STEPS, ZEROS)]
    proto = blocked(product, *stored, axis, middle)
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    wide = w.astype(np.int64) - np.repeat(ZEROS, BLOCK, 0)[:20]
    sums = in_blocks(x.astype(np.int64) - 100, wide, bits)
    expected = output_of(sums) * (2 if form == "Gemm" else 1)
    np.testing.assert_array_equal(output, expected)
    (kept,) = narrowing.accumulations().values()
    exact = in_blocks(x.astype(np.int64) - 100, wide, 60)
    assert kept.tally.outputs.sum() == sums.size
    assert kept.tally.outputs_changed.sum() == np.count_nonzero(sums != exact)
    np.testing.assert_allclose(
        narrowed(proto, parse_policy("32"), x)[0], by_onnxruntime(proto, x), rtol=1e-5, atol=1e-4
    )


def test_the_widest_block_is_guaranteed():
    """x - 100 is from -100 to 155."""
    w = int8(20, 5)
    proto = blocked(FORMS["MatMul"][0], w, STEPS, ZEROS, 0)
    (kept,) = narrowed(proto, parse_policy("32"), uint8(4, 20))[1].accumulations().values()
    wide = np.zeros((24, 5), np.int64)
    wide[:20] = w.astype(np.int64) - np.repeat(ZEROS, BLOCK, 0)[:20]
    blocks = wide.reshape(3, BLOCK, 5)
    most = np.maximum(blocks * 155, blocks * -100).sum(1).max(0)
    least = np.minimum(blocks * 155, blocks * -100).sum(1).min(0)
    needed = np.maximum([int(n).bit_length() for n in most],
                        [int(-n - 1).bit_length() for n in least]) + 1  # fmt: skip
    np.testing.assert_array_equal(kept.guaranteed_channels, needed)


def test_weights_of_4_bits():
    w = RANDOM.integers(-8, 8, (20, 5)).astype(ml_dtypes.int4)
    proto = blocked(FORMS["MatMul"][0], w, STEPS, np.zeros((3, 5), ml_dtypes.int4), 0)
    x = uint8(4, 20)
    sums = in_blocks(x.astype(np.int64) - 100, w.astype(np.int64), 11)
    np.testing.assert_array_equal(narrowed(proto, parse_policy("11"), x)[0], output_of(sums))


def test_a_bias_is_added_to_the_scaled_sums():
    w, c = int8(20, 5), RANDOM.normal(0, 9, 5).astype(np.float32)
    proto = blocked("y = Gemm (xd, wb, c)", w, STEPS, ZEROS, 0)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(c, "c"))
    x = uint8(4, 20)
    wide = w.astype(np.int64) - np.repeat(ZEROS, BLOCK, 0)[:20]
    expected = output_of(in_blocks(x.astype(np.int64) - 100, wide, 13)) + c
    np.testing.assert_array_equal(narrowed(proto, parse_policy("13"), x)[0], expected)


def test_blocks_of_columns_give_the_terms_of_a_sum_different_scales():
    proto = blocked(
        "y = MatMul (xd, wb)", int8(20, 5), np.ones((20, 1), np.float32),
        np.zeros((20, 1), np.int8), 1,
    )  # fmt: skip
    with pytest.raises(ModelError, match="the terms of a sum have different scales"):
        narrowed(proto, parse_policy("16"), uint8(4, 20))


def test_other_operators_add_no_blocks():
    proto = blocked("y = Einsum (xd, wb)", int8(20, 5), STEPS, ZEROS, 0)
    proto.graph.node[-1].attribute.append(helper.make_attribute("equation", "ik,kj->ij"))
    with pytest.raises(ModelError, match="has a scale for each block, whose sums only MatMul"):
        narrowed(proto, parse_policy("16"), uint8(4, 20))


def test_zero_points_stay_in_no_sum_of_blocks():
    proto = blocked(FORMS["MatMul"][0], int8(20, 5), STEPS, ZEROS, 0)
    after = Policy.of(Accumulator(20, zero_points="after"))
    with pytest.raises(ModelError, match="sums of blocks, which keep no zero points"):
        narrowed(proto, after, uint8(4, 20))
