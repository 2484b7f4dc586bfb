"""Nodes in narrow accumulators against sums made one Python integer at a time."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from tracer import loading
from tracer.errors import InputError, ModelError, UsageError
from tracer.interpreter.arithmetic.accumulator import Accumulator
from tracer.interpreter.arithmetic.fixed_point import FixedPoint, Formats
from tracer.interpreter.arithmetic.narrow import Narrowing
from tracer.interpreter.arithmetic.orders import Terms, named
from tracer.interpreter.arithmetic.policy import Policy
from tracer.interpreter.arithmetic.policy_text import read
from tracer.interpreter.interpreter import Interpreter

RANDOM = np.random.default_rng()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test draws the same numbers, whichever ran before it."""
    RANDOM.bit_generator.state = np.random.default_rng(5).bit_generator.state


def model(body: str, **weights: np.ndarray) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> g {body}')
    for name, value in weights.items():
        made.graph.initializer.append(numpy_helper.from_array(value, name))
    return made


def narrowed(
    proto: onnx.ModelProto, policy: Policy, *feeds: np.ndarray
) -> tuple[np.ndarray, Narrowing]:
    loaded = loading.from_proto(proto)
    narrowing = Narrowing(loaded, policy)
    named = {v.name: x for v, x in zip(loaded.inputs, feeds, strict=True)}
    return Interpreter(loaded, around=narrowing.kernel).run(None, named)[0], narrowing


def plain(proto: onnx.ModelProto, *feeds: np.ndarray) -> np.ndarray:
    interpreter = Interpreter(proto)
    named = {v.name: x for v, x in zip(interpreter.get_inputs(), feeds, strict=True)}
    return interpreter.run(None, named)[0]


def saturated(products: list[int], bits: int, bias: int = 0) -> int:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    total = min(max(bias, low), high)
    for product in products:
        total = min(max(total + int(product), low), high)
    return total


def convolved(x, w, bits, bias=None, stride=1, pad=0, group=1):
    """Products by input channel, kernel row, kernel column."""
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    maps, deep, high, wide = w.shape
    size = [(x.shape[2 + i] - k) // stride + 1 for i, k in enumerate((high, wide))]
    out = np.empty((len(x), maps, *size), np.int64)
    for n, m, i, j in itertools.product(*map(range, out.shape)):
        first = m // (maps // group) * deep
        patch = x[n, first : first + deep, i * stride : i * stride + high,
                  j * stride : j * stride + wide]  # fmt: skip
        products = (patch * w[m].astype(np.int64)).ravel().tolist()
        out[n, m, i, j] = saturated(products, bits, 0 if bias is None else int(bias[m]))
    return out


def int8(*shape: int) -> np.ndarray:
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


def uint8(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


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
    made, narrowing = narrowed(proto, read(str(bits)), x)
    centred = x.astype(np.int64) - 130, w.astype(np.int64) - 3
    np.testing.assert_array_equal(made, convolved(*centred, bits, None, stride, pad, group))
    exact = convolved(*centred, 64, None, stride, pad, group)
    np.testing.assert_array_equal(plain(proto, x), exact)
    (found,) = narrowing.accumulations().values()
    assert found.tally.outputs.sum() == exact.size
    assert found.tally.outputs_changed.sum() == np.count_nonzero(made != exact)
    assert found.tally.max_abs_error.max() == np.abs(made - exact).max()
    assert (found.tally.final_min.min(), found.tally.final_max.max()) == (exact.min(), exact.max())


@pytest.mark.parametrize("bits", [10, 14, 16, 32])
def test_quantised_convolution_with_a_bias(bits):
    w, x, bias = int8(3, 2, 2, 2), uint8(1, 2, 5, 5), RANDOM.integers(-9000, 9000, 3)
    proto = model(
        "(uint8[1,2,5,5] x) => (uint8[a,b,c,d] y) { y = QLinearConv (x, s, z, w, t, v, u, z, b) }",
        w=w, s=np.float32(0.1), z=np.uint8(120), t=np.array([0.1, 0.2, 0.3], np.float32),
        v=np.zeros(3, np.int8), u=np.float32(90), b=bias.astype(np.int32),
    )  # fmt: skip
    made, _ = narrowed(proto, read(str(bits)), x)
    sums = convolved(x.astype(np.int64) - 120, w, bits, bias)
    scale = np.float32(0.1) * np.array([0.1, 0.2, 0.3], np.float32) / np.float32(90)
    expected = np.clip(np.rint(sums * scale.reshape(-1, 1, 1)) + 120, 0, 255)
    np.testing.assert_array_equal(made, expected.astype(np.uint8))


QDQ_CONV = """(float[1,2,5,5] x) => (float[a,b,c,d] y) {
  xq = QuantizeLinear (x, xs, xz)
  xd = DequantizeLinear (xq, xs, xz)
  wd = DequantizeLinear <axis = 0> (w, ws, wz)
  bd = DequantizeLinear <axis = 0> (b, bs)
  y = Conv (xd, wd, bd)
}"""


def qdq_conv() -> tuple[onnx.ModelProto, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    w, bias = int8(3, 2, 2, 2), RANDOM.integers(-9000, 9000, 3).astype(np.int32)
    xs, ws = np.float32(0.03), np.array([0.01, 0.02, 0.005], np.float32)
    proto = model(QDQ_CONV, w=w, b=bias, xs=xs, xz=np.uint8(100), ws=ws,
                  wz=np.zeros(3, np.int8), bs=xs * ws)  # fmt: skip
    return proto, w, bias, xs, ws


@pytest.mark.parametrize("bits", [10, 14, 16])
def test_convolution_between_dequantised_tensors(bits):
    proto, w, bias, xs, ws = qdq_conv()
    x = RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    made, narrowing = narrowed(proto, read(str(bits)), x)
    integers = np.clip(np.rint(x / xs) + 100, 0, 255).astype(np.int64) - 100
    step = (xs.astype(np.float64) * ws).reshape(-1, 1, 1)
    sums = convolved(integers, w, bits, bias)
    np.testing.assert_array_equal(np.rint(made / step), sums)
    untouched = sums == convolved(integers, w, 64, bias)
    np.testing.assert_array_equal(made[untouched], plain(proto, x)[untouched])
    (found,) = narrowing.accumulations().values()
    assert found.tally.outputs_changed.sum() == np.count_nonzero(~untouched) > 0


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
    made, _ = narrowed(proto, read(str(bits)), x)
    whole = plain(proto, x)
    spread = np.zeros((1, 2, 7, 5), np.int64)
    spread[:, :, ::2, ::2] = x
    spread = np.pad(spread, ((0, 0), (0, 0), (2, 3), (2, 2)))
    turned = np.flip(w.swapaxes(0, 1), (2, 3))
    cut = slice(None), slice(None), slice(1, 1 + whole.shape[2]), slice(0, whole.shape[3])
    np.testing.assert_array_equal(convolved(spread, turned, 64)[cut] * 0.25, whole)
    np.testing.assert_array_equal(made, convolved(spread, turned, bits)[cut] * 0.25)


def multiplied(a, b, bits, bias=None):
    """Products in the order of the columns of `a`."""
    out = np.empty((len(a), b.shape[1]), np.int64)
    for i, j in np.ndindex(*out.shape):
        products = (a[i].astype(np.int64) * b[:, j].astype(np.int64)).tolist()
        out[i, j] = saturated(products, bits, 0 if bias is None else int(bias[j]))
    return out


@pytest.mark.parametrize("bits", [8, 13, 16, 20, 40])
def test_integer_matmul(bits):
    a, b = uint8(5, 30), int8(30, 4)
    proto = model(
        "(uint8[5,30] a) => (int32[r,c] y) { y = MatMulInteger (a, b, az, bz) }",
        b=b, az=np.uint8(7), bz=np.array([1, 2, 3, -4], np.int8),
    )  # fmt: skip
    made, _ = narrowed(proto, read(str(bits)), a)
    centred = a.astype(np.int64) - 7, b.astype(np.int64) - np.array([1, 2, 3, -4])
    np.testing.assert_array_equal(made, multiplied(*centred, bits))


@pytest.mark.parametrize("bits", [8, 12, 40])
def test_quantised_matmul_of_stacks(bits):
    a, b = uint8(3, 5, 12), uint8(3, 12, 2)
    proto = model(
        "(uint8[3,5,12] a, uint8[3,12,2] b) => (int8[n,r,c] y)"
        " { y = QLinearMatMul (a, s, z, b, s, z, t, v) }",
        s=np.float32(0.1), z=np.uint8(128), t=np.float32(9), v=np.int8(1),
    )  # fmt: skip
    made, _ = narrowed(proto, read(str(bits)), a, b)
    left, right = (t.astype(np.int64) - 128 for t in (a, b))
    sums = np.stack([multiplied(x, y, bits) for x, y in zip(left, right, strict=True)])
    factor = np.float32(0.1) * np.float32(0.1) / np.float32(9)
    np.testing.assert_array_equal(made, np.clip(np.rint(sums * factor) + 1, -128, 127))


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
    made, _ = narrowed(proto, read(str(bits)), x)
    integers = np.clip(np.rint(x / s), -128, 127).astype(np.int64)
    sums = multiplied(integers, w.T, bits, bias)
    np.testing.assert_array_equal(np.rint(made / (np.float64(s) * ws)), sums)
    assert not np.array_equal(sums, multiplied(integers, w.T, 64, bias))


def test_a_bias_that_is_no_whole_steps_is_added_to_the_output():
    proto, w, _, xs, ws = qdq_conv()
    proto.graph.node[3].CopyFrom(onnx.helper.make_node("Identity", ["fb"], ["bd"]))
    shift = np.array([0.001, 0.7, -0.3], np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(shift, "fb"))
    x = RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    made, _ = narrowed(proto, read("12"), x)
    integers = np.clip(np.rint(x / xs) + 100, 0, 255).astype(np.int64) - 100
    step = (xs.astype(np.float64) * ws).reshape(-1, 1, 1)
    expected = convolved(integers, w, 12) * step + shift.reshape(-1, 1, 1)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("node", "axes", "divisor"),
    [
        ("GlobalAveragePool (xd)", (2, 3), 20),
        ("ReduceSum <keepdims = 0> (xd, axes)", (2, 3), 1),
        ("ReduceMean (xd, axes)", (2, 3), 20),
        ("ReduceSum (xd)", (0, 1, 2, 3), 1),
        ("ReduceMean <keepdims = 0> (xd, channels)", (1,), 3),
    ],
)
@pytest.mark.parametrize("bits", [8, 9, 10, 20])
def test_sums_without_products(node, axes, divisor, bits):
    proto = model(
        f"(int8[2,3,4,5] x) => (float y) {{ xd = DequantizeLinear (x, s, z) y = {node} }}",
        s=np.float32(0.5), z=np.int8(0), axes=np.array([2, 3]), channels=np.array([1]),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    x = int8(2, 3, 4, 5)
    made, _ = narrowed(proto, read(str(bits)), x)
    whole = plain(proto, x)
    sums = np.apply_along_axis(
        lambda row: saturated(row.tolist(), bits), -1,
        np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*_left(x.shape, axes), -1),
    )  # fmt: skip
    np.testing.assert_array_equal(made.ravel(), (sums * 0.5 / divisor).astype(np.float32).ravel())
    assert made.shape == whole.shape


def _left(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    return [n for axis, n in enumerate(shape) if axis not in axes]


@pytest.mark.parametrize("bits", [8, 9, 10, 20])
def test_average_pooling(bits):
    proto = model(
        "(int8[2,3,5,5] x) => (float[a,b,c,d] y) { xd = DequantizeLinear (x, s, z)"
        " y = AveragePool <kernel_shape = [3,2], pads = [1,0,1,0], strides = [2,1]> (xd) }",
        s=np.float32(0.5), z=np.int8(0),
    )  # fmt: skip
    x = int8(2, 3, 5, 5)
    made, _ = narrowed(proto, read(str(bits)), x)
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (0, 0)))
    for n, c, i, j in np.ndindex(*made.shape):
        window = wide[n, c, 2 * i : 2 * i + 3, j : j + 2]
        inside = 6 if 0 < i < 2 else 4
        total = saturated(window.ravel().tolist(), bits)
        assert made[n, c, i, j] == np.float32(total * 0.5 / inside)


@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (3, 1)), ((5,), ())])
def test_additions_of_one_scale(shapes):
    left, right = (int8(*shape) for shape in shapes)
    proto = model(
        f"(int8{list(shapes[0])} a, int8{list(shapes[1])} b) => (float y) {{"
        " ad = DequantizeLinear (a, s, z) bd = DequantizeLinear (b, s, z) y = Add (ad, bd) }",
        s=np.float32(0.5), z=np.int8(0),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    made, _ = narrowed(proto, read("8"), left, right)
    sums = np.clip(left.astype(np.int64) + right.astype(np.int64), -128, 127)
    np.testing.assert_array_equal(made, sums * np.float32(0.5))


FLOAT = """(float[2,2,5,5] x) => (float[a,b] y) {
  c = Conv <pads = [1,1,1,1]> (x, w, b)
  r = Relu (c)
  p = GlobalAveragePool (r)
  f = Flatten (p)
  y = MatMul (f, m)
}"""


def float_model() -> onnx.ModelProto:
    weights = {"w": (3, 2, 3, 3), "b": (3,), "m": (3, 4)}
    drawn = {k: RANDOM.normal(0, 0.5, s).astype(np.float32) for k, s in weights.items()}
    return model(FLOAT, **drawn)


def test_floats_as_fixed_point_numbers():
    proto = float_model()
    x = RANDOM.normal(0, 1, (2, 2, 5, 5)).astype(np.float32)
    policy = read("Conv=14", fixed="8:5/8:7")
    proto.graph.output[0].name = "c"
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    made, _ = narrowed(proto, policy, x)
    stored = {w.name: numpy_helper.to_array(w).astype(np.float64) for w in proto.graph.initializer}
    left = np.clip(np.rint(stored["w"] * 2**7), -128, 127)
    right = np.clip(np.rint(x.astype(np.float64) * 2**5), -128, 127)
    sums = convolved(right, left.astype(np.int64), 14, np.rint(stored["b"] * 2**12), pad=1)
    np.testing.assert_array_equal(made, (sums / 2**12).astype(np.float32))


def test_fine_fixed_point_numbers_come_close_to_floats():
    proto = float_model()
    x = RANDOM.normal(0, 1, (2, 2, 5, 5)).astype(np.float32)
    made, _ = narrowed(proto, read("62", fixed="24:18"), x)
    np.testing.assert_allclose(made, plain(proto, x), atol=1e-3)


def test_floats_without_a_format_are_refused():
    with pytest.raises(ModelError, match=r"'Conv_0' \(Conv\) has no integer arithmetic.*'x'"):
        Narrowing(loading.from_proto(float_model()), read("16"))


def test_a_named_node_must_add_something_up():
    with pytest.raises(ModelError, match=r"'Relu_1' \(Relu\) adds nothing up"):
        Narrowing(loading.from_proto(float_model()), read("Relu=16"))


def test_an_entry_must_match_something():
    with pytest.raises(UsageError, match="nothere=16"):
        Narrowing(loading.from_proto(float_model()), read("nothere=16"))


def test_an_overflow_can_end_the_run():
    proto, *_ = qdq_conv()
    x = RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    policy = Policy.of(Accumulator(12, "error"))
    with pytest.raises(ModelError, match=r"Conv_4.*leaves \[-2048, 2047\]"):
        narrowed(proto, policy, x)


def test_a_wide_accumulator_changes_no_bit():
    proto, *_ = qdq_conv()
    x = RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    np.testing.assert_array_equal(narrowed(proto, read("32"), x)[0], plain(proto, x))


def test_runs_add_up():
    proto, *_ = qdq_conv()
    loaded = loading.from_proto(proto)
    narrowing = Narrowing(loaded, read("14"))
    interpreter = Interpreter(loaded, around=narrowing.kernel)
    for _ in range(3):
        interpreter.run(None, {"x": RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)})
    (found,) = narrowing.accumulations().values()
    assert found.tally.outputs.tolist() == [48, 48, 48]


def test_formats_differ_for_activations_and_weights():
    formats = Formats(FixedPoint(8, 5), FixedPoint(4, 3))
    made, _ = narrowed(float_model(), Policy.of(Accumulator(20), formats),
                       np.zeros((2, 2, 5, 5), np.float32))  # fmt: skip
    assert np.isfinite(made).all()


@pytest.mark.parametrize("bits", [12, 40])
def test_widths_that_are_seen_guaranteed_and_of_the_types(bits):
    w, x = int8(3, 2, 2, 2), uint8(2, 2, 6, 6)
    proto = model("(uint8[2,2,6,6] x) => (int32[a,b,c,d] y) { y = ConvInteger (x, w, z) }",
                  w=w, z=np.uint8(9))  # fmt: skip
    _, narrowing = narrowed(proto, read(str(bits)), x)
    (found,) = narrowing.accumulations().values()
    wide = w.reshape(3, -1).astype(np.int64)
    low = np.minimum(wide * -9, wide * 246).sum(1)
    high = np.maximum(wide * -9, wide * 246).sum(1)
    needed = [max(int(a).bit_length(), int(-b - 1).bit_length()) + 1
              for a, b in zip(high, low, strict=True)]  # fmt: skip
    assert found.guaranteed_channels.tolist() == needed  # 0 is in the range of inputs
    assert found.guaranteed == max(needed) == found.guaranteed_any_order
    assert found.datatype == (8 * 246 * 128).bit_length() + 1
    assert found.tally.bits_observed.max() <= found.guaranteed <= found.datatype


def test_two_activations_are_bounded_by_their_types():
    proto = model("(uint8[3,4] a, uint8[4,2] b) => (int32[r,c] y) { y = MatMulInteger (a, b) }")
    _, narrowing = narrowed(proto, read("16"), uint8(3, 4), uint8(4, 2))
    (found,) = narrowing.accumulations().values()
    assert found.guaranteed == found.datatype == (4 * 255 * 255).bit_length() + 1
    assert found.guaranteed_channels.shape == (2,)


def test_what_pairs_lose_counts_as_an_error_but_not_as_an_event():
    w = np.full((4, 1), 127, np.int8)
    proto = model("(uint8[1,4] a) => (int32[r,c] y) { y = MatMulInteger (a, w) }", w=w)
    policy = read("32", like=Accumulator(32, order=named("maddubs")))
    made, narrowing = narrowed(proto, policy, np.full((1, 4), 255, np.uint8))
    (found,) = narrowing.accumulations().values()
    assert made.item() == 2 * 32767
    assert found.tally.saturation_events.sum() == 0
    assert found.tally.outputs_changed.sum() == 1
    assert found.tally.max_abs_error.max() == 2 * (64770 - 32767)


def test_a_zero_point_that_is_computed_may_be_another_next_time():
    proto = model(
        """(float[r,8] x) => (int32[r,c] y) {
          q, s, z = DynamicQuantizeLinear (x)
          y = MatMulInteger (q, w, z)
        }""",
        w=np.array([[127] * 3, [-128] * 3] * 4, np.int8),
    )  # fmt: skip
    loaded = loading.from_proto(proto)
    for feeds in itertools.permutations([np.full(8, 5.0), np.full(8, -5.0), np.eye(8)[0]]):
        narrowing = Narrowing(loaded, read("20"))
        interpreter = Interpreter(loaded, around=narrowing.kernel)
        for x in feeds:
            interpreter.run(None, {"x": x.astype(np.float32)[None]})
        (found,) = narrowing.accumulations().values()
        assert found.guaranteed == 19  # 4 · 255 · 255 needs 18 bits and a sign: 260,100 < 2^18
        assert found.guaranteed >= found.tally.bits_observed.max()


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
    made, _ = narrowed(proto, read("10", None, Accumulator(10, "error")), np.zeros_like(x))
    assert made.shape == whole.shape
    integers = (whole / 0.25).astype(np.int64)
    made, narrowing = narrowed(proto, read("60"), x)
    np.testing.assert_array_equal(made, whole)
    (found,) = narrowing.accumulations().values()
    extremes = found.tally.final_min.min(), found.tally.final_max.max()
    assert extremes == (integers.min(), integers.max())


@pytest.mark.parametrize(("zero", "fit"), [(np.uint8(9), True), (np.int16(0), False)])
def test_integers_that_float16_cannot_tell_apart_are_refused(zero, fit):
    limits = np.iinfo(zero.dtype)
    x = np.arange(limits.min, limits.max + 1, dtype=np.int64)
    proto = model(
        f"({zero.dtype}[{x.size}] x) => (float16[a] y)"
        " { xd = DequantizeLinear (x, s, z) y = Add (xd, xd) }",
        s=np.float16(0.0371), z=zero,
    )  # fmt: skip
    if not fit:
        with pytest.raises(ModelError, match="11 bits of precision"):
            Narrowing(loading.from_proto(proto), read("20"))
        return
    _, narrowing = narrowed(proto, read("20"), x.astype(zero.dtype))
    (found,) = narrowing.accumulations().values()
    seen = int(found.tally.final_min.min()), int(found.tally.final_max.max())
    assert seen == (2 * (limits.min - int(zero)), 2 * (limits.max - int(zero)))


@pytest.mark.parametrize(
    ("quantise", "low", "high"),
    [("QuantizeLinear", 0, 255), ("QuantizeLinear <output_dtype = 5>", -(1 << 15), (1 << 15) - 1)],
)
def test_the_type_of_a_tensor_without_zero_point(quantise, low, high):
    proto = model(
        f"(float[4] x) => (float[4] y) {{ q = {quantise} (x, s)"
        " d = DequantizeLinear (q, s) y = Add (d, d) }",
        s=np.float32(0.5),
    )  # fmt: skip
    proto.opset_import[0].version = 21
    _, narrowing = narrowed(proto, read("20"), np.array([-1e9, -1, 1, 1e9], np.float32))
    (found,) = narrowing.accumulations().values()
    assert (found.tally.final_min.min(), found.tally.final_max.max()) == (2 * low, 2 * high)
    assert found.guaranteed == found.tally.bits_observed.max()


def test_an_input_without_zero_point_has_the_type_it_is_declared_with():
    proto = model(
        "(int8[4] x) => (float[4] y) { d = DequantizeLinear (x, s) y = Add (d, d) }",
        s=np.float32(0.5),
    )  # fmt: skip
    made, _ = narrowed(proto, read("8"), np.array([-128, -1, 1, 127], np.int8))
    np.testing.assert_array_equal(made, np.float32([-64, -1, 1, 63.5]))


@pytest.mark.parametrize("bias", [np.nan, np.inf, 1e30])
def test_a_bias_beyond_fixed_point_is_named(bias):
    proto = model("(float[1,2] x) => (float[1,1] y) { y = Gemm (x, w, b) }",
                  w=np.ones((2, 1), np.float32), b=np.full(1, bias, np.float32))  # fmt: skip
    with pytest.raises(InputError, match=r"Gemm_0.*a bias from .* has no fixed-point number"):
        narrowed(proto, read("16", fixed="8:4"), np.ones((1, 2), np.float32))


@pytest.mark.parametrize(
    "order", ["sequential", "channelwise", "tree", "chunked(3)", "lanes(4)", "sorted", "maddubs"]
)
def test_a_sum_of_nothing_is_0(order):
    proto = model("(uint8[r,k] a, int8[k,c] b) => (int32[r,c] y) { y = MatMulInteger (a, b) }")
    policy = Policy.of(Accumulator(8, order=named(order)))
    made, narrowing = narrowed(proto, policy, uint8(2, 0), int8(0, 3))
    np.testing.assert_array_equal(made, np.zeros((2, 3)))
    (found,) = narrowing.accumulations().values()
    assert (found.guaranteed, found.datatype) == (2, 2)


@pytest.mark.parametrize(("order", "shape"), [("chunked", (1, 3)), ("lanes", (3, 1))])
def test_a_size_beyond_the_terms_takes_no_memory(order, shape):
    assert named(f"{order}(999999999)").stages(Terms(3))[0].groups.shape == shape


POOL = """(int8[1,2,H,W] x) => (float[1,2,1,1] y) {
  xd = DequantizeLinear (x, s, z)
  y = GlobalAveragePool (xd)
}"""


def test_sizes_may_grow_from_run_to_run():
    """A guarantee is for all that was summed, and not for what was summed first."""
    loaded = loading.from_proto(model(POOL, s=np.float32(0.5), z=np.int8(0)))
    narrowing = Narrowing(loaded, read("30"))
    interpreter = Interpreter(loaded, around=narrowing.kernel)
    for size in (2, 20):
        interpreter.run(None, {"x": np.full((1, 2, size, size), -128, np.int8)})
    (found,) = narrowing.accumulations().values()
    assert found.tally.bits_observed.max() == (400 * 128 - 1).bit_length() + 1
    assert found.guaranteed == found.datatype == found.tally.bits_observed.max()


def test_channels_whose_number_changes_are_counted_as_one():
    proto = model("(uint8[3,K] a, uint8[K,N] b) => (int32[r,c] y) { y = MatMulInteger (a, b) }")
    loaded = loading.from_proto(proto)
    narrowing = Narrowing(loaded, read("30"))
    interpreter = Interpreter(loaded, around=narrowing.kernel)
    sums = []
    for depth, columns in ((4, 5), (4, 7), (6, 5), (2, 0)):
        a, b = uint8(3, depth), uint8(depth, columns)
        interpreter.run(None, {"a": a, "b": b})
        sums += (a.astype(np.int64) @ b).ravel().tolist()
    (found,) = narrowing.accumulations().values()
    assert found.tally.outputs.tolist() == [len(sums)]
    assert (found.tally.final_min.item(), found.tally.final_max.item()) == (min(sums), max(sums))
    assert found.guaranteed == (6 * 255 * 255).bit_length() + 1
