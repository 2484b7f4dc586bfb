"""Convolutions and matrix products in narrow accumulators against sums of Python integers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from tests.accumulators.nodes import (
    RANDOM,
    convolved,
    int8,
    model,
    multiplied,
    narrowed,
    plain,
    qdq_conv,
    uint8,
)
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import parse_policy


@pytest.mark.parametrize("bits", [8, 12, 14, 17, 30])
@pytest.mark.parametrize(("group", "stride", "pad"), [(1, 1, 0), (2, 2, 1), (4, 1, 1)])
def test_integer_convolution(bits, group, stride, pad):
    w, x = int8(8, 4 // group, 3, 3), uint8(2, 4, 6, 5)
    proto = model(
        "(uint8[2,4,6,5] x) => (int32[a,b,c,d] y) "
        f"{{ y = ConvInteger <group={group}, strides=[{stride},{stride}],"
        f" pads=[{pad},{pad},{pad},{pad}]> (x, w, xz, wz) }}",
        w=w, xz=np.uint8(130), wz=np.int8(3),
    )  # fmt: skip
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    centred = x.astype(np.int64) - 130, w.astype(np.int64) - 3
    np.testing.assert_array_equal(output, convolved(*centred, bits, None, stride, pad, group))
    exact = convolved(*centred, 64, None, stride, pad, group)
    np.testing.assert_array_equal(plain(proto, x), exact)
    (result,) = narrowing.accumulations().values()
    assert result.tally.outputs.sum() == exact.size
    assert result.tally.outputs_changed.sum() == np.count_nonzero(output != exact)
    assert result.tally.max_abs_error.max() == np.abs(output - exact).max()
    assert (result.tally.final_min.min(), result.tally.final_max.max()) == (
        exact.min(),
        exact.max(),
    )


@pytest.mark.parametrize("bits", [10, 14, 16, 32])
def test_quantised_convolution_with_a_bias(bits):
    w, x, bias = int8(3, 2, 2, 2), uint8(1, 2, 5, 5), RANDOM.integers(-9000, 9000, 3)
    proto = model(
        "(uint8[1,2,5,5] x) => (uint8[a,b,c,d] y) { y = QLinearConv (x, s, z, w, t, v, u, z, b) }",
        w=w, s=np.float32(0.1), z=np.uint8(120), t=np.array([0.1, 0.2, 0.3], np.float32),
        v=np.zeros(3, np.int8), u=np.float32(90), b=bias.astype(np.int32),
    )  # fmt: skip
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    sums = convolved(x.astype(np.int64) - 120, w, bits, bias)
    scale = np.float32(0.1) * np.array([0.1, 0.2, 0.3], np.float32) / np.float32(90)
    expected = np.clip(np.rint(sums * scale.reshape(-1, 1, 1)) + 120, 0, 255)
    np.testing.assert_array_equal(output, expected.astype(np.uint8))


@pytest.mark.parametrize("bits", [10, 14, 16])
def test_convolution_between_dequantised_tensors(bits):
    proto, w, bias, xs, ws = qdq_conv()
    x = RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    integers = np.clip(np.rint(x / xs) + 100, 0, 255).astype(np.int64) - 100
    step = (xs.astype(np.float64) * ws).reshape(-1, 1, 1)
    sums = convolved(integers, w, bits, bias)
    np.testing.assert_array_equal(np.rint(output / step), sums)
    np.testing.assert_array_equal(output, (sums * step).astype(np.float32))
    untouched = sums == convolved(integers, w, 64, bias)
    np.testing.assert_allclose(output[untouched], plain(proto, x)[untouched], atol=1e-4)
    (result,) = narrowing.accumulations().values()
    assert result.tally.outputs_changed.sum() == np.count_nonzero(~untouched) > 0


@pytest.mark.parametrize("bits", [9, 13, 16])
def test_quantised_transposed_convolution(bits):
    w, x = int8(2, 3, 3, 3), int8(1, 2, 4, 3)
    proto = model(
        """(int8[1,2,4,3] x) => (float[a,b,c,d] y) {
          xd = DequantizeLinear (x, s)
          wd = DequantizeLinear (w, s)
          y = ConvTranspose <strides=[2,2], pads=[1,0,0,1], output_padding=[1,0]> (xd, wd)
        }""",
        w=w, s=np.float32(0.5), zero=np.int8(0),
    )  # fmt: skip
    proto.graph.node[0].input.append("zero")
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    whole = plain(proto, x)
    spread = np.zeros((1, 2, 7, 5), np.int64)
    spread[:, :, ::2, ::2] = x
    spread = np.pad(spread, ((0, 0), (0, 0), (2, 3), (2, 2)))
    turned = np.flip(w.swapaxes(0, 1), (2, 3))
    cut = slice(None), slice(None), slice(1, 1 + whole.shape[2]), slice(0, whole.shape[3])
    np.testing.assert_array_equal(convolved(spread, turned, 64)[cut] * 0.25, whole)
    np.testing.assert_array_equal(output, convolved(spread, turned, bits)[cut] * 0.25)


@pytest.mark.parametrize(("pads", "more"), [([0, 0], [1, 0]), ([0, 1], [0, 0]), ([0, 0], [0, 1])])
def test_transposed_convolution_that_does_not_end_with_its_input(pads, more):
    w, x = int8(2, 3, 1, 1), int8(2, 2, 4, 3)
    proto = model(
        f"""(int8[2,2,4,3] x) => (float[a,b,c,d] y) {{
          xd = DequantizeLinear (x, s, z)
          wd = DequantizeLinear (w, s)
          y = ConvTranspose <strides=[2,2], pads={[0, 0, *pads]}, output_padding={more}> (xd, wd)
        }}""",
        w=w, s=np.float32(0.5), z=np.int8(0),
    )  # fmt: skip
    whole = plain(proto, x)
    output, _ = narrowed(
        proto, parse_policy("10", None, Accumulator(10, "error")), np.zeros_like(x)
    )
    assert output.shape == whole.shape
    integers = (whole / 0.25).astype(np.int64)
    output, narrowing = narrowed(proto, parse_policy("60"), x)
    np.testing.assert_array_equal(output, whole)
    (result,) = narrowing.accumulations().values()
    extremes = result.tally.final_min.min(), result.tally.final_max.max()
    assert extremes == (integers.min(), integers.max())


@pytest.mark.parametrize("bits", [8, 13, 16, 20, 40])
def test_integer_matmul(bits):
    a, b = uint8(5, 30), int8(30, 4)
    proto = model(
        "(uint8[5,30] a) => (int32[r,c] y) { y = MatMulInteger (a, b, az, bz) }",
        b=b, az=np.uint8(7), bz=np.array([1, 2, 3, -4], np.int8),
    )  # fmt: skip
    output, _ = narrowed(proto, parse_policy(str(bits)), a)
    centred = a.astype(np.int64) - 7, b.astype(np.int64) - np.array([1, 2, 3, -4])
    np.testing.assert_array_equal(output, multiplied(*centred, bits))


@pytest.mark.parametrize("bits", [8, 12, 40])
def test_quantised_matmul_of_stacks(bits):
    a, b = uint8(3, 5, 12), uint8(3, 12, 2)
    proto = model(
        "(uint8[3,5,12] a, uint8[3,12,2] b) => (int8[n,r,c] y)"
        " { y = QLinearMatMul (a, s, z, b, s, z, t, v) }",
        s=np.float32(0.1), z=np.uint8(128), t=np.float32(9), v=np.int8(1),
    )  # fmt: skip
    output, _ = narrowed(proto, parse_policy(str(bits)), a, b)
    left, right = (t.astype(np.int64) - 128 for t in (a, b))
    sums = np.stack([multiplied(x, y, bits) for x, y in zip(left, right, strict=True)])
    factor = np.float32(0.1) * np.float32(0.1) / np.float32(9)
    np.testing.assert_array_equal(output, np.clip(np.rint(sums * factor) + 1, -128, 127))


GEMM = """(float[4,20] x) => (float[r,c] y) {
  xq = QuantizeLinear (x, s, z)
  xd = DequantizeLinear (xq, s, z)
  wd = DequantizeLinear <axis = 0> (w, ws, wz)
  bd = DequantizeLinear <axis = 0> (b, bs)
  y = Gemm <transB = 1> (xd, wd, bd)
}"""


@pytest.mark.parametrize("bits", [9, 12, 15])
def test_gemm_with_a_scale_for_each_column(bits):
    w, bias = int8(3, 20), np.array([500, -4000, 0], np.int32)
    s, ws = np.float32(0.05), np.array([0.5, 0.25, 0.125], np.float32)
    proto = model(GEMM, w=w, b=bias, s=s, z=np.int8(0), ws=ws, wz=np.zeros(3, np.int8), bs=s * ws)
    x = RANDOM.normal(0, 2, (4, 20)).astype(np.float32)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    integers = np.clip(np.rint(x / s), -128, 127).astype(np.int64)
    sums = multiplied(integers, w.T, bits, bias)
    np.testing.assert_array_equal(np.rint(output / (np.float64(s) * ws)), sums)
    assert not np.array_equal(sums, multiplied(integers, w.T, 64, bias))


def test_a_bias_that_is_no_whole_steps_is_added_to_the_output():
    proto, w, _, xs, ws = qdq_conv()
    proto.graph.node[3].CopyFrom(onnx.helper.make_node("Identity", ["fb"], ["bd"]))
    shift = np.array([0.001, 0.7, -0.3], np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(shift, "fb"))
    x = RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    output, _ = narrowed(proto, parse_policy("12"), x)
    integers = np.clip(np.rint(x / xs) + 100, 0, 255).astype(np.int64) - 100
    step = (xs.astype(np.float64) * ws).reshape(-1, 1, 1)
    expected = convolved(integers, w, 12) * step + shift.reshape(-1, 1, 1)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
