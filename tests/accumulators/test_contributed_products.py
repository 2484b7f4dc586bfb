"""onnxruntime's own products: narrow against int64 sums, wide against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.accumulators.nodes import RANDOM, convolved, int8, multiplied, narrowed, plain, uint8
from tests.accumulators.test_quantized_operators import model, quantised
from tests.accumulators.test_sum_operators import by_onnxruntime
from tracer.accumulators.spec.policy import parse_policy

WIDTHS = [9, 13, 16, 32]
SCALES = np.linspace(0.01, 0.03, 5, dtype=np.float32)


def small(*shape: int) -> np.ndarray:
    """Weights whose products with bytes no 16-bit instruction of onnxruntime saturates."""
    return RANDOM.integers(-63, 64, shape).astype(np.int8)


def check_wide(proto: onnx.ModelProto, *feeds: np.ndarray) -> None:
    wide, narrowing = narrowed(proto, parse_policy("32"), *feeds)
    np.testing.assert_allclose(wide, by_onnxruntime(proto, *feeds), rtol=1e-5, atol=1e-5)
    (sums,) = narrowing.accumulations().values()
    assert sums.tally.outputs.sum() == wide.size


def dequantised(node: str, **weights: np.ndarray) -> onnx.ModelProto:
    """A node of x and w with zero points of 0 and steps of 0.5 and 0.25."""
    proto = model(
        f"(int8 x) => (float y) {{ xd = DequantizeLinear (x, s) wd = DequantizeLinear (w, t) {node}"
        " }",
        s=np.float32(0.5), t=np.float32(0.25), **weights,
    )  # fmt: skip
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.ClearField("shape")
    return proto


@pytest.mark.parametrize("bits", WIDTHS)
def test_a_fused_convolution_adds_z_to_the_output(bits):
    w, z = small(3, 2, 2, 2), RANDOM.normal(0, 40, (1, 3, 4, 4)).astype(np.float32)
    proto = dequantised(
        'y = com.microsoft.FusedConv <activation = "LeakyRelu", activation_params = [0.25],'
        " kernel_shape = [2,2]> (xd, wd, b, z)",
        w=w, z=z, b=np.zeros(3, np.float32),
    )  # fmt: skip
    x = int8(1, 2, 5, 5)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    total = (convolved(x, w, bits) * 0.125).astype(np.float32) + z
    np.testing.assert_array_equal(output, np.where(total < 0, total * np.float32(0.25), total))
    check_wide(proto, x)


@pytest.mark.parametrize("bits", WIDTHS)
def test_a_fused_gemm_has_its_activation_after_the_sums(bits):
    w = small(5, 30)
    proto = dequantised(
        'y = com.microsoft.FusedGemm <activation = "Relu", transB = 1> (xd, wd)', w=w
    )
    x = int8(4, 30)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    sums = multiplied(x, w.T, bits)
    np.testing.assert_array_equal(output, np.maximum(sums, 0) * np.float32(0.125))
    check_wide(proto, x)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize(("left", "right"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_fused_product_takes_transposed_operands(left, right, bits):
    a, w = int8(4, 30), small(30, 5)
    proto = dequantised(
        f"y = com.microsoft.FusedMatMul <alpha = 2.0, transA = {left}, transB = {right}> (xd, wd)",
        w=w.T.copy() if right else w,
    )
    x = a.T.copy() if left else a
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    np.testing.assert_array_equal(output, multiplied(a, w, bits) * np.float32(0.25))
    check_wide(proto, x)


def test_the_batch_of_a_fused_product_may_come_second():
    a, b = int8(6, 3, 8), int8(6, 8, 2)
    proto = dequantised(
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1> (xd, wd)",
        w=np.ascontiguousarray(np.moveaxis(b, 0, 1)),
    )
    x = np.ascontiguousarray(np.moveaxis(a, 0, 1))
    output, _ = narrowed(proto, parse_policy("12"), x)
    for batch in range(6):
        sums = multiplied(a[batch], b[batch], 12)
        np.testing.assert_array_equal(output[batch], sums * np.float32(0.125))
    check_wide(proto, x)


@pytest.mark.parametrize("bits", WIDTHS)
def test_columns_of_a_transposed_factor_have_scales_of_their_own(bits):
    w = small(5, 30)
    proto = model(
        "(uint8[4,30] x) => (float[4,5] y) { xd = DequantizeLinear (x, s, z)"
        " wd = DequantizeLinear <axis = 0> (w, t, v)"
        " y = com.microsoft.FusedMatMul <transB = 1> (xd, wd) }",
        s=np.float32(0.5), z=np.uint8(3), w=w, t=SCALES, v=np.zeros(5, np.int8),
    )  # fmt: skip
    x = uint8(4, 30)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    sums = multiplied(x.astype(np.int64) - 3, w.T, bits)
    np.testing.assert_allclose(output, sums * 0.5 * SCALES, rtol=1e-6)
    check_wide(proto, x)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("biased", [False, True])
def test_integers_to_floats(bits, biased):
    w, bias = small(30, 5), RANDOM.normal(0, 3, 5).astype(np.float32)
    zeros = RANDOM.integers(-9, 9, 5).astype(np.int8)
    proto = model(
        "(uint8[4,30] x) => (float[4,5] y) { y = com.microsoft.MatMulIntegerToFloat"
        f" (x, w, s, t, z, v{', c' if biased else ''}) }}",
        w=w, s=np.float32(0.5), t=SCALES, z=np.uint8(120), v=zeros, c=bias,
    )  # fmt: skip
    x = uint8(4, 30)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    sums = multiplied(x.astype(np.int64) - 120, w.astype(np.int64) - zeros, bits)
    expected = sums.astype(np.float32) * (np.float32(0.5) * SCALES)
    np.testing.assert_array_equal(output, expected + bias if biased else expected)
    np.testing.assert_array_equal(narrowed(proto, parse_policy("32"), x)[0], plain(proto, x))
    check_wide(proto, x)


@pytest.mark.parametrize("bits", WIDTHS)
def test_activations_rounded_by_their_own_range(bits):
    w, bias = small(30, 5), RANDOM.normal(0, 3, 5).astype(np.float32)
    proto = model(
        "(float[4,30] x) => (float[4,5] y)"
        " { y = com.microsoft.DynamicQuantizeMatMul (x, w, t, v, c) }",
        w=w, t=SCALES, v=np.zeros(5, np.int8), c=bias,
    )  # fmt: skip
    x = RANDOM.normal(1, 3, (4, 30)).astype(np.float32)
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    scale = (max(x.max(), 0) - min(x.min(), 0)) / np.float32(255)
    zero = np.rint(-min(x.min(), 0) / scale)
    stored = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64)
    sums = multiplied(stored - int(zero), w, bits)
    np.testing.assert_array_equal(output, sums.astype(np.float32) * (scale * SCALES) + bias)
    (kept,) = narrowing.accumulations().values()
    most = int(255 * np.abs(w.astype(np.int64)).sum(0).max())
    assert kept.guaranteed == most.bit_length() + 1
    check_wide(proto, x)


@pytest.mark.parametrize("bits", [18, 24, 30])
def test_products_of_16_bits(bits):
    proto = model(
        "(int16[4,9] x) => (int32[4,5] y) { y = com.microsoft.MatMulInteger16 (x, w) }",
        w=RANDOM.integers(-2000, 2000, (9, 5)).astype(np.int16),
    )
    x = RANDOM.integers(-9000, 9000, (4, 9)).astype(np.int16)
    w = onnx.numpy_helper.to_array(proto.graph.initializer[0])
    np.testing.assert_array_equal(
        narrowed(proto, parse_policy(str(bits)), x)[0], multiplied(x, w, bits)
    )
    check_wide(proto, x)


@pytest.mark.parametrize("bits", [10, 14, 16, 32])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("group", [1, 2])
def test_a_quantised_convolution_with_channels_at_the_last_axis(bits, last, group):
    w, bias = small(4, 4 // group, 3, 2), RANDOM.integers(-2000, 2000, 4).astype(np.int32)
    shape = [2, 6, 5, 4] if last else [2, 4, 6, 5]
    proto = model(
        f"(uint8{shape} x) => (uint8[a,b,c,d] y) {{ y = com.microsoft.QLinearConv <channels_last ="
        f" {last}, group = {group}, kernel_shape = [3,2], pads = [1,1,1,1], strides = [2,2]>"
        " (x, s, z, w, t, v, u, q, b) }",
        s=np.float32(0.1), z=np.uint8(120), w=w, t=SCALES[:4], v=np.zeros(4, np.int8),
        u=np.float32(2), q=np.uint8(128), b=bias,
    )  # fmt: skip
    x = uint8(*shape)
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    first = np.moveaxis(x, -1, 1) if last else x
    sums = convolved(first.astype(np.int64) - 120, w, bits, bias, 2, 1, group)
    factor = (np.float32(0.1) * SCALES[:4] / np.float32(2)).reshape(-1, 1, 1)
    expected = quantised(sums, factor, 128)
    np.testing.assert_array_equal(output, np.moveaxis(expected, 1, -1) if last else expected)
    (kept,) = narrowing.accumulations().values()
    assert len(kept.tally.outputs) == 4
    wide = narrowed(proto, parse_policy("32"), x)[0]
    np.testing.assert_array_equal(wide, plain(proto, x))
    np.testing.assert_allclose(
        wide.astype(int), by_onnxruntime(proto, x).astype(int), atol=1
    )  # a half may go to either neighbour


@pytest.mark.parametrize("bits", [12, 15, 16, 32])
def test_the_projection_of_a_quantised_attention(bits):
    """One head of width 4: queries, keys and values are the products, then floats."""
    width = 4
    w, bias = small(8, 3 * width), RANDOM.normal(0, 0.5, 3 * width).astype(np.float32)
    proto = model(
        "(uint8[2,3,8] x) => (float[2,3,4] y, float[a,b,c,d,e] p) {"
        " y, p = com.microsoft.QAttention <num_heads = 1> (x, w, b, s, t, , z, v) }",
        w=w, b=bias, s=np.float32(0.01), t=np.float32(0.02), z=np.uint8(120), v=np.int8(3),
    )  # fmt: skip
    x = uint8(2, 3, 8)
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    rows = x.reshape(6, 8).astype(np.int64) - 120
    sums = multiplied(rows, w.astype(np.int64) - 3, bits)
    projected = (sums * 0.0002 + bias).reshape(2, 3, 3 * width)
    q, k, v = np.split(projected, 3, axis=-1)
    scores = np.exp(q @ k.swapaxes(1, 2) / 2)
    expected = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    (kept,) = narrowing.accumulations().values()
    exact = multiplied(rows, w.astype(np.int64) - 3, 60)
    assert kept.tally.outputs_changed.sum() == np.count_nonzero(sums != exact)
    (note,) = narrowing.notes
    assert note.startswith("partly narrowed: QAttention_0: the products of the input and the")
    if bits == 32:
        np.testing.assert_allclose(output, by_onnxruntime(proto, x), rtol=1e-4, atol=1e-5)
