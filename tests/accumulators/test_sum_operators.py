"""Sum, Mean, Sub, CumSum, norms and Lp poolings: narrow against int64 sums, wide against ORT."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.accumulators.nodes import int8, model, narrowed, plain, saturated, uint8
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

STEP = 0.5
ZERO = 100
X = "(uint8[2,3,4,5] x) => (float y) { xd = DequantizeLinear (x, s, z) y = "


def quantised(body: str, **weights: np.ndarray) -> onnx.ModelProto:
    proto = model(body, s=np.float32(STEP), z=np.uint8(ZERO), **weights)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


def centred(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int64) - ZERO


def each_row(terms: np.ndarray, axes: tuple[int, ...], bits: int) -> np.ndarray:
    """Saturating sums over axes, in row-major order; they stay with size 1."""
    last = np.moveaxis(terms, axes, range(-len(axes), 0))
    kept = [n for axis, n in enumerate(terms.shape) if axis not in axes]
    sums = [saturated(row.tolist(), bits) for row in last.reshape(np.prod(kept, dtype=int), -1)]
    return np.expand_dims(np.array(sums, np.int64).reshape(kept), axes)


def by_onnxruntime(proto: onnx.ModelProto, *feeds: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, dict(zip([v.name for v in session.get_inputs()], feeds, strict=True)))[
        0
    ]


def check_wide(proto: onnx.ModelProto, *feeds: np.ndarray) -> None:
    output, emulation = narrowed(proto, parse_policy("40"), *feeds)
    np.testing.assert_allclose(output, by_onnxruntime(proto, *feeds), rtol=3e-7)
    (sums,) = emulation.accumulations().values()
    assert sums.tally.outputs.sum() == output.size


@pytest.mark.parametrize("bits", [8, 9, 10, 20])
@pytest.mark.parametrize("operator", ["Sum", "Mean"])
def test_sums_of_tensors_add_them_in_the_order_of_the_inputs(operator, bits):
    proto = quantised(
        "(uint8[2,3,4] a, uint8[3,1] b, uint8[4] c) => (float y) { ad = DequantizeLinear (a, s, z)"
        " bd = DequantizeLinear (b, s, z) cd = DequantizeLinear (c, s, z)"
        f" y = {operator} (ad, bd, cd) }}"
    )
    feeds = uint8(2, 3, 4), uint8(3, 1), uint8(4)
    output, _ = narrowed(proto, parse_policy(str(bits)), *feeds)
    terms = np.stack(np.broadcast_arrays(*map(centred, feeds)), -1)
    sums = each_row(terms, (3,), bits)[..., 0]
    divisor = 3 if operator == "Mean" else 1
    np.testing.assert_array_equal(output, (sums * STEP / divisor).astype(np.float32))
    check_wide(proto, *feeds)


DIFFERENCE = """(uint8[2,3] a, int8[3] b) => (float y) {
  ad = DequantizeLinear (a, s, z)  bd = DequantizeLinear (b, s)  y = Sub (ad, bd) }"""


@pytest.mark.parametrize("bits", [8, 9, 12])
def test_a_difference_begins_with_the_first_tensor(bits):
    proto, a, b = quantised(DIFFERENCE), uint8(2, 3), int8(3)
    output, _ = narrowed(proto, parse_policy(str(bits)), a, b)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    first = np.clip(centred(a), low, high)
    sums = np.clip(first - b.astype(np.int64), low, high)
    np.testing.assert_array_equal(output, sums * np.float32(STEP))
    check_wide(proto, a, b)


def test_the_bounds_of_a_difference_are_reached():
    """From 0 - 100 - 127 to 255 - 100 + 128: 10 bits, and no fewer."""
    proto = quantised(DIFFERENCE)
    a, b = np.array([[0, 255, 0]] * 2, np.uint8), np.array([127, -128, 0], np.int8)
    (sums,) = narrowed(proto, parse_policy("32"), a, b)[1].accumulations().values()
    assert (sums.tally.acc_min.min(), sums.tally.acc_max.max()) == (-227, 283)
    assert sums.guaranteed == sums.tally.bits_observed.max() == 10


def test_tensors_of_different_ranges_have_bounds_of_their_own():
    """0 … 155 and -100 … 27 reach 182, where two of -100 … 155 would reach 310."""
    proto = quantised(
        "(uint8[4] a, uint8[4] b, float[4] u, float[4] v) => (float y) {"
        " ad = DequantizeLinear (a, s, z) ar = Relu (ad) top = Constant <value_float = 13.5> ()"
        " bd = DequantizeLinear (b, s, z) bf = Clip (bd, , top)"
        " bq = QuantizeLinear (bf, s, z) be = DequantizeLinear (bq, s, z) y = Add (ar, be) }"
    )
    del proto.graph.input[2:]
    (sums,) = (
        narrowed(proto, parse_policy("32"), np.full(4, 255, np.uint8), np.full(4, 127, np.uint8))[1]
        .accumulations()
        .values()
    )
    assert sums.tally.acc_max.max() == 182
    assert sums.guaranteed == sums.tally.bits_observed.max() == 9


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("bits", [8, 9, 10, 20])
def test_each_running_sum_begins_at_the_end_that_the_node_names(exclusive, reverse, bits):
    proto = quantised(
        f"{X}CumSum <exclusive = {exclusive}, reverse = {reverse}> (xd, axis) }}",
        axis=np.int64(2),
    )
    x = uint8(2, 3, 4, 5)
    output, emulation = narrowed(proto, parse_policy(str(bits)), x)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    total, expected = np.zeros((2, 3, 5), np.int64), np.empty((2, 3, 4, 5), np.int64)
    for place in range(4)[:: -1 if reverse else 1]:
        before = total
        total = np.clip(total + centred(x)[:, :, place], low, high)
        expected[:, :, place] = before if exclusive else total
    np.testing.assert_array_equal(output, expected * np.float32(STEP))
    check_wide(proto, x)
    (sums,) = emulation.accumulations().values()
    # 155 from 4 terms of uint8 with zero point 100; 3 of them where the own term is left out
    assert sums.guaranteed == (10 if exclusive else 11)


def test_running_sums_of_a_long_axis_stay_wide_and_say_so():
    proto = quantised(
        "(uint8[9000] x, uint8[2] a) => (float y) { xd = DequantizeLinear (x, s, z)"
        " y = CumSum (xd, axis) ad = DequantizeLinear (a, s, z) b = Add (ad, ad) }",
        axis=np.int64(0),
    )  # fmt: skip
    x = uint8(9000)
    output, emulation = narrowed(proto, parse_policy("9"), x, uint8(2))
    np.testing.assert_array_equal(output, np.cumsum(centred(x)) * np.float32(STEP))
    (note,) = emulation.notes
    assert note.endswith("CumSum_1: its axis has 9,000 elements; up to 8,192 are narrow")


@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceL2", "ReduceSumSquare"])
@pytest.mark.parametrize("axes", [(2, 3), (1,), (0, 1, 2, 3)])
@pytest.mark.parametrize("bits", [9, 14, 17, 30])
def test_norms_add_magnitudes_or_squares(operator, axes, bits):
    proto = quantised(f"{X}{operator} (xd, axes) }}", axes=np.array(axes))
    x = uint8(2, 3, 4, 5)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    terms = np.abs(centred(x)) if operator == "ReduceL1" else centred(x) ** 2
    sums = each_row(terms, axes, bits) * (STEP if operator == "ReduceL1" else STEP**2)
    expected = np.sqrt(sums) if operator == "ReduceL2" else sums
    np.testing.assert_array_equal(output, expected.astype(np.float32))
    check_wide(proto, x)


def test_squares_are_bounded_as_squares():
    """60 squares of up to 155² need 22 bits; 60 products from -155·100 would not be sums below."""
    proto = quantised(f"{X}ReduceSumSquare (xd, axes) }}", axes=np.array([1, 2, 3]))
    x = np.full((2, 3, 4, 5), 255, np.uint8)
    (sums,) = narrowed(proto, parse_policy("32"), x)[1].accumulations().values()
    assert sums.guaranteed == sums.tally.bits_observed.max() == (60 * 155**2).bit_length() + 1


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("bits", [8, 14, 16, 30])
def test_lp_poolings_add_magnitudes_or_squares_of_a_window(p, bits):
    proto = quantised(
        f"{X}LpPool <p = {p}, kernel_shape = [3,2], pads = [1,0,1,0], strides = [2,1]> (xd) }}"
    )
    x = uint8(2, 3, 4, 5)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    wide = np.pad(np.abs(centred(x)) ** p, ((0, 0), (0, 0), (1, 1), (0, 0)))
    for n, c, i, j in np.ndindex(*output.shape):
        row = wide[n, c, 2 * i : 2 * i + 3, j : j + 2].ravel().tolist()
        total = saturated(row, bits) * STEP**p
        assert output[n, c, i, j] == np.float32(np.sqrt(total) if p == 2 else total)
    check_wide(proto, x)


@pytest.mark.parametrize("bits", [9, 18, 30])
def test_a_global_lp_pooling_adds_squares_of_a_channel(bits):
    proto, x = quantised(f"{X}GlobalLpPool (xd) }}"), uint8(2, 3, 4, 5)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    sums = each_row(centred(x) ** 2, (2, 3), bits)
    np.testing.assert_array_equal(output, np.sqrt(sums * STEP**2).astype(np.float32))
    check_wide(proto, x)


EMPTY = {
    "Sum": "Sum (xd, xd)",
    "Sub": "Sub (xd, xd)",
    "CumSum": "CumSum (xd, axis)",
    "ReduceL1": "ReduceL1 (xd, axes)",
    "ReduceSumSquare": "ReduceSumSquare <keepdims = 0> (xd, axes)",
    "ReduceSum": "ReduceSum (xd, axes)",
    "LpPool": "LpPool <kernel_shape = [1]> (xd)",
    "GlobalLpPool": "GlobalLpPool (xd)",
}


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
@pytest.mark.parametrize("operator", EMPTY)
def test_empty_tensors_have_the_sums_of_nothing(operator, shape):
    if operator == "LpPool" and not shape[2]:
        pytest.skip("a window over nothing has no size")
    proto = quantised(
        f"(uint8{list(shape)} x) => (float y) {{ xd = DequantizeLinear (x, s, z)"
        f" y = {EMPTY[operator]} }}",
        axis=np.int64(1), axes=np.array([1]),
    )  # fmt: skip
    x = uint8(*shape)
    output, emulation = narrowed(proto, parse_policy("9"), x)
    expected = plain(proto, x)
    assert output.shape == expected.shape
    np.testing.assert_array_equal(output, np.zeros_like(expected))
    (sums,) = emulation.accumulations().values()
    assert sums.tally.outputs.sum() == output.size
    assert sums.guaranteed >= 2


def test_a_third_power_is_no_sum_of_integers():
    proto = quantised(f"{X}LpPool <p = 3, kernel_shape = [2,2]> (xd) }}")
    with pytest.raises(ModelError, match="p is 3, and only magnitudes"):
        narrowed(proto, parse_policy("20"), uint8(2, 3, 4, 5))


def test_squares_of_more_than_32_bits_are_refused():
    proto = model(
        "(uint16[9] x) => (float y) { xd = DequantizeLinear (x, s, z) y = ReduceSumSquare (xd) }",
        s=np.float32(0.5), z=np.uint16(0),
    )  # fmt: skip
    proto.opset_import[0].version = 21
    with pytest.raises(ModelError, match="its terms reach 4294836225, and terms have"):
        narrowed(proto, parse_policy("40"), np.zeros(9, np.uint16))


@pytest.mark.parametrize("operator", ["Add", "Sub"])
def test_a_sum_between_element_wise_nodes_is_no_entry_of_a_table(operator):
    """The nodes around it could be one table of bytes, in which nothing overflows."""
    proto = quantised(
        "(uint8[6] x) => (uint8[6] y) { xd = DequantizeLinear (x, s, z) r = Relu (xd)"
        f" bd = DequantizeLinear (b, s, z) t = {operator} (r, bd) y = QuantizeLinear (t, s, z) }}",
        b=np.array([0, 50, 100, 150, 200, 255], np.uint8),
    )
    x, loaded = np.array([100, 120, 150, 200, 230, 255], np.uint8), loading.from_proto(proto)
    emulation = AccumulatorEmulation(loaded, parse_policy("8"))
    interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    (output,) = interpreter.run(None, {"x": x})
    b = centred(np.array([0, 50, 100, 150, 200, 255]))
    first = np.clip(np.maximum(centred(x), 0), -128, 127)
    sums = np.clip(first + (b if operator == "Add" else -b), -128, 127)
    np.testing.assert_array_equal(output, np.clip(sums + ZERO, 0, 255))
    (tally,) = (each.tally for each in emulation.accumulations().values())
    assert tally.outputs.sum() == 6
