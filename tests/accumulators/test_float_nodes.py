"""Nodes in float accumulators: bit for bit as loops in numpy's float32 and float16."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.accumulators.float_loops import convolved, multiplied, summed
from tests.accumulators.nodes import model, narrowed, plain
from tests.examples import at_night, examples
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError, UsageError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

TYPES = {"fp32": np.float32, "fp16": np.float16}
SEEDS = st.integers(0, 2**32)


def node(
    op: str, inputs: dict[str, np.ndarray], fed: tuple[str, ...], **attributes: Any
) -> onnx.ModelProto:
    """A model of one node `y`; inputs that are not `fed` are stored."""
    stored = [numpy_helper.from_array(v, n) for n, v in inputs.items() if n not in fed]
    feeds = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(inputs[name].dtype), [None] * inputs[name].ndim
        )
        for name in fed
    ]
    dtype = helper.np_dtype_to_tensor_dtype(inputs[fed[0]].dtype)
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), ["y"], "y", **attributes)], "g", feeds,
        [helper.make_tensor_value_info("y", dtype, None)], stored,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def reference(proto: onnx.ModelProto, *feeds: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    named = {v.name: x for v, x in zip(session.get_inputs(), feeds, strict=True)}
    return session.run(None, named)[0]


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of very different sizes, and some zeros."""
    values = rng.normal(0, 1, shape) * 2.0 ** rng.integers(-6, 4, shape)
    return np.where(rng.random(shape) < 0.1, 0, values).astype(np.float32)


@st.composite
def convolutions(draw: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, dict[str, Any]]:
    rank, group = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(SEEDS))
    sizes = lambda low, high: draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))  # noqa: E731
    kernel, dilations = sizes(1, 3), sizes(1, 2)
    pads = [*sizes(0, 2), *sizes(0, 2)]
    size = [(k - 1) * d + 1 + more
            for k, d, more in zip(kernel, dilations, sizes(0, 3), strict=True)]  # fmt: skip
    x = drawn(rng, draw(st.integers(1, 3)), group * draw(st.integers(1, 3)), *size)
    w = drawn(rng, group * draw(st.integers(1, 2)), x.shape[1] // group, *kernel)
    bias = drawn(rng, len(w)) if draw(st.booleans()) else None
    options = {"strides": sizes(1, 2), "dilations": dilations, "pads": pads, "group": group}
    return x, w, bias, options


@pytest.mark.parametrize("name", TYPES)
@given(convolutions())
@examples(25)
def test_a_convolution_is_that_of_a_loop(name, case):
    x, w, bias, options = case
    inputs = {"x": x, "w": w} | ({} if bias is None else {"b": bias})
    output, _ = narrowed(node("Conv", inputs, ("x",), **options), parse_policy(name), x)
    expected = convolved(x, w, bias, TYPES[name], **options)
    np.testing.assert_array_equal(output, expected.astype(np.float32))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 5), (5, 4)), ((2, 3, 5), (5, 4)), ((2, 1, 3, 5), (3, 5, 2)), ((5,), (5, 4)),
     ((2, 3, 5), (5,)), ((5,), (5,)), ((0, 5), (5, 2)), ((2, 0), (0, 3))],
)  # fmt: skip
def test_a_matrix_product_is_that_of_a_loop(name, left, right):
    rng = np.random.default_rng(7)
    a, b = drawn(rng, *left), drawn(rng, *right)
    output, _ = narrowed(node("MatMul", {"a": a, "b": b}, ("a", "b")), parse_policy(name), a, b)
    wide = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    expected = multiplied(*wide, TYPES[name]).astype(np.float32)
    np.testing.assert_array_equal(output, expected.reshape(np.matmul(a, b).shape))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm_adds_c_first(name, turned):
    rng = np.random.default_rng(8)
    a, b, c = drawn(rng, 6, 9), drawn(rng, 9, 4), drawn(rng, 4)
    stored = {"a": a.T.copy() if turned[0] else a, "b": b.T.copy() if turned[1] else b, "c": c}
    proto = node("Gemm", stored, ("a",), transA=turned[0], transB=turned[1])
    output, _ = narrowed(proto, parse_policy(name), stored["a"])
    expected = summed(b.T, a.T, c, TYPES[name]).T
    np.testing.assert_array_equal(output, expected.astype(np.float32))


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4), (6, 1), (6, 4), (1, 1)])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.5, 1.0), (1.0, -2.0)])
def test_gemm_agrees_with_onnxruntime_for_any_c(shape, factors):
    rng = np.random.default_rng(9)
    inputs = {"a": drawn(rng, 6, 9), "b": drawn(rng, 9, 4), "c": drawn(rng, *shape)}
    proto = node("Gemm", inputs, ("a",), alpha=factors[0], beta=factors[1])
    output, _ = narrowed(proto, parse_policy("fp32"), inputs["a"])
    np.testing.assert_allclose(output, reference(proto, inputs["a"]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("size", [(7,), (5, 6)])
def test_a_transposed_convolution_agrees_with_onnxruntime(group, size):
    rng = np.random.default_rng(10)
    rank = len(size)
    inputs = {"x": drawn(rng, 2, 4, *size), "w": drawn(rng, 4, 3, *[3] * rank),
              "b": drawn(rng, 3 * group)}  # fmt: skip
    proto = node("ConvTranspose", inputs, ("x",), group=group, strides=[2] * rank,
                 pads=[1] * 2 * rank, output_padding=[1] * rank)  # fmt: skip
    output, _ = narrowed(proto, parse_policy("fp32"), inputs["x"])
    np.testing.assert_allclose(output, reference(proto, inputs["x"]), rtol=1e-5, atol=1e-5)


def test_operands_are_cast_as_ml_dtypes_casts_them():
    rng = np.random.default_rng(11)
    x, w = drawn(rng, 2, 3, 6, 6), drawn(rng, 4, 3, 3, 3)
    options = {"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4, "group": 1}
    proto = node("Conv", {"x": x, "w": w}, ("x",), **options)
    output, emulation = narrowed(proto, parse_policy("fp32", operands="fp8-e4m3"), x)
    cast = [v.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) for v in (x, w)]
    np.testing.assert_array_equal(output, convolved(*cast, None, np.float32, **options))
    assert emulation.float_sums[0].tally.operands == "fp8-e4m3"


def to_int8(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Integers of 8 bits, and their scales: the largest magnitude along an axis is 127."""
    scale = np.abs(values).max(axis, keepdims=True) / np.float32(127)
    return np.rint(values / scale), scale


def test_scales_of_rows_and_columns_multiply_the_sums():
    """Integers of 8 bits have exact sums in float32."""
    rng = np.random.default_rng(21)
    a, b, c = drawn(rng, 6, 40), drawn(rng, 40, 5), drawn(rng, 5)
    proto = node("Gemm", {"a": a, "b": b, "c": c}, ("a",))
    output, _ = narrowed(proto, parse_policy("fp32", operands="int8(channel)"), a)
    (rows, by_row), (columns, by_column) = to_int8(a, 1), to_int8(b, 0)
    np.testing.assert_array_equal(output, rows @ columns * by_row * by_column + c)


@pytest.mark.parametrize("shapes", [((40,), (40, 5)), ((3, 6, 40), (40,)), ((40,), (3, 40, 5)),
                                    ((2, 1, 6, 40), (3, 40, 5)), ((40,), (40,))])  # fmt: skip
def test_scales_follow_their_axes(shapes):
    rng = np.random.default_rng(22)
    a, b = (drawn(rng, *shape) for shape in shapes)
    proto = node("MatMul", {"a": a, "b": b}, ("a",))
    output, _ = narrowed(proto, parse_policy("fp32", operands="int8(channel)"), a)
    expected = np.matmul(a.astype(np.float64), b)
    assert output.shape == expected.shape
    size = np.abs(a).max() * np.abs(b).max()
    np.testing.assert_allclose(output, expected, atol=40 * size / 127)
    assert output.size < 3 or np.corrcoef(output.ravel(), expected.ravel())[0, 1] > 0.99


def test_weights_of_a_convolution_have_a_scale_for_each_output_channel():
    rng = np.random.default_rng(23)
    x, w, bias = drawn(rng, 2, 3, 6, 6), drawn(rng, 4, 3, 3, 3), drawn(rng, 4)
    options = {"strides": [1, 1], "dilations": [1, 1], "pads": [1] * 4, "group": 1}
    proto = node("Conv", {"x": x, "w": w, "b": bias}, ("x",), **options)
    output, _ = narrowed(proto, parse_policy("fp32", operands="int8(channel)"), x)
    images, by_image = to_int8(x.reshape(2, -1), 1)
    kernels, by_map = to_int8(w.reshape(4, -1), 1)
    sums = convolved(images.reshape(x.shape), kernels.reshape(w.shape), None, np.float32, **options)
    scaled = sums * by_image.reshape(2, 1, 1, 1) * by_map.reshape(1, 4, 1, 1)
    np.testing.assert_array_equal(output, scaled + bias.reshape(4, 1, 1))


def test_blocks_share_a_power_of_2_along_the_terms():
    """OCP Microscaling: 32 numbers are divided by 2^(e - 8), e the exponent of the largest."""
    rng = np.random.default_rng(24)
    a, b = drawn(rng, 3, 70), drawn(rng, 70, 4)
    proto = node("MatMul", {"a": a, "b": b}, ("a",))
    output, _ = narrowed(proto, parse_policy("fp32", operands="mxfp8-e4m3"), a)

    def cast(rows: np.ndarray) -> np.ndarray:
        out = np.empty_like(rows)
        for first in range(0, rows.shape[1], 32):
            block = rows[:, first : first + 32]
            largest = np.abs(block).max(1, keepdims=True)
            scale = np.exp2(np.floor(np.log2(largest)) - 8).astype(np.float32)
            limited = np.clip(block / scale, -448, 448)
            elements = limited.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
            out[:, first : first + 32] = elements * scale
        return out

    expected = multiplied(cast(a), cast(np.ascontiguousarray(b.T)).T, np.float32)
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize(
    ("accumulator", "operands", "named"),
    [("tc:h100", "nvfp4", "does not multiply operands of nvfp4"),
     ("tc:h100", "mxfp8-e4m3", "does not multiply operands of mxfp8-e4m3"),
     ("tc:h100", "int8", "does not multiply operands of int8"),
     ("bfma(16,25)", "nvfp4", "groups of 1 products of fp4-e2m1 with scales nvfp4"),
     ("bfma(16,25)", "mxint8", "has no model of operands in mxint8")],
)  # fmt: skip
def test_block_scales_that_a_card_has_no_model_of_are_refused(accumulator, operands, named):
    with pytest.raises(UsageError, match=named):
        AccumulatorEmulation(
            loading.from_proto(small()), parse_policy(accumulator, operands=operands)
        )


@pytest.mark.parametrize(
    ("accumulator", "operands"),
    [("tc:b200", "mxfp4"), ("tc:b200", "nvfp4"), ("tc:rtx-blackwell", "mxfp8-e5m2"),
     ("bfma(8,25)", "mxfp6-e2m3"), ("deepgemm", "fp8-e4m3(tiles)"), ("bf16", "fp8-e4m3(tiles)")],
)  # fmt: skip
def test_blocks_with_scales_are_multiplied(accumulator, operands):
    rng = np.random.default_rng(25)
    a, b = drawn(rng, 3, 70), drawn(rng, 70, 4)
    proto = node("MatMul", {"a": a, "b": b}, ("a",))
    output, _ = narrowed(proto, parse_policy(accumulator, operands=operands), a)
    wide, _ = narrowed(proto, parse_policy("fp32", operands=operands), a)
    np.testing.assert_allclose(output, wide, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_graph_of_half_floats_keeps_its_types(dtype):
    rng = np.random.default_rng(12)
    a, b = (drawn(rng, *shape).astype(dtype) for shape in ((3, 20), (20, 4)))
    output, _ = narrowed(node("MatMul", {"a": a, "b": b}, ("a",)), parse_policy("fp16"), a)
    assert output.dtype == dtype
    np.testing.assert_array_equal(output, multiplied(a, b, np.float16).astype(dtype))


def test_a_card_takes_the_type_of_the_graph_where_it_multiplies_it():
    rng = np.random.default_rng(13)
    a, b = (drawn(rng, *shape).astype(np.float16) for shape in ((3, 20), (20, 4)))
    proto = node("MatMul", {"a": a, "b": b}, ("a",))
    output, emulation = narrowed(proto, parse_policy("tc:a100"), a)
    cast, _ = narrowed(proto, parse_policy("tc:a100", operands="fp16"), a)
    np.testing.assert_array_equal(output, cast)
    assert emulation.notes == ()


def test_a_card_with_one_format_casts_to_it_and_says_so():
    a = np.ones((2, 3), np.float32)
    _, emulation = narrowed(
        node("MatMul", {"a": a, "b": a.T.copy()}, ("a",)), parse_policy("tc:v100"), a
    )
    assert emulation.notes == (
        "operands of tc:v100 are cast to fp16, the only format that it multiplies",
    )


def test_a_card_with_several_formats_casts_to_the_first_and_says_so():
    proto = node("MatMul", {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 2), np.float32)},
                 ("a",))  # fmt: skip
    emulation = AccumulatorEmulation(loading.from_proto(proto), parse_policy("tc:a100"))
    assert emulation.notes == (
        "operands of tc:a100 are cast to fp16, the first of 3 formats that it multiplies",
    )
    with pytest.raises(UsageError, match="does not multiply operands of fp8-e4m3"):
        AccumulatorEmulation(
            loading.from_proto(proto), parse_policy("tc:a100", operands="fp8-e4m3")
        )


QDQ = """(float[N,3,5,5] x) => (float[a,b,c,d] y) {
  xq = QuantizeLinear (x, xs, xz)
  xd = DequantizeLinear (xq, xs, xz)
  wd = DequantizeLinear <axis = 0> (w, ws)
  y = Conv (xd, wd)
}"""


def test_operands_of_a_quantised_graph_are_its_dequantised_floats():
    rng = np.random.default_rng(14)
    w, ws = rng.integers(-128, 128, (4, 3, 2, 2)).astype(np.int8), np.float32([0.5, 0.1, 2, 1])
    xs, xz = np.float32(0.03), np.uint8(100)
    x = drawn(rng, 2, 3, 5, 5)
    output, _ = narrowed(model(QDQ, w=w, ws=ws, xs=xs, xz=xz), parse_policy("fp16"), x)
    steps = np.clip(np.rint(x / xs) + np.float32(100), 0, 255) - np.float32(100)
    floats = steps.astype(np.float32) * xs, w * ws.reshape(-1, 1, 1, 1)
    expected = convolved(*floats, None, np.float16, strides=[1, 1], dilations=[1, 1],
                         pads=[0] * 4, group=1)  # fmt: skip
    np.testing.assert_array_equal(output, expected.astype(np.float32))


SMALL = """(float[N,2,6,6] x) => (float[a,b] y) {
  c = Conv <pads = [1,1,1,1]> (x, w, b)
  g = Conv <group = 3> (c, d)
  f = Flatten (g)
  m = MatMul (f, m1)
  y = Gemm (m, m2, c2)
}"""


def small() -> onnx.ModelProto:
    rng = np.random.default_rng(15)
    weights = {"w": (3, 2, 3, 3), "b": (3,), "d": (6, 1, 3, 3), "m1": (96, 20), "m2": (20, 5),
               "c2": (5,)}  # fmt: skip
    return model(SMALL, **{name: drawn(rng, *shape) for name, shape in weights.items()})


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("accumulator", "operands"),
    at_night(
        [("fp16", None), ("e5m7(sr=7)", None), ("bf16(chunk=8,sr)", "mxfp8-e4m3"),
         ("tc:v100", None), ("fp32", "int8"), ("fp16", "int8(channel)"), ("fp32", "nvfp4"),
         ("tc:h100", "fp8-e4m3(tensor)"), ("tc:b200", "nvfp4"), ("deepgemm", "fp8-e4m3(tiles)")],
        but=[("e5m7(sr=7)", None), ("fp16", "int8(channel)"), ("tc:b200", "nvfp4"),
             ("deepgemm", "fp8-e4m3(tiles)")],
    ),
)  # fmt: skip
def test_outputs_and_statistics_do_not_depend_on_threads_or_batches(accumulator, operands):
    x = drawn(np.random.default_rng(16), 64, 2, 6, 6)
    loaded = loading.from_proto(small())
    results = []
    for threads, batch in ((1, 64), (2, 64), (1, 8), (2, 1)):
        emulation = AccumulatorEmulation(loaded, parse_policy(accumulator, operands=operands))
        interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap, threads=threads)
        parts = [interpreter.run(None, {"x": x[i : i + batch]})[0] for i in range(0, 64, batch)]
        results.append((np.concatenate(parts), emulation.float_sums))
    (first, sums), *others = results
    assert len(sums) == 4
    assert sums[0].tally.outputs == 64 * 3 * 36
    for output, other in others:
        np.testing.assert_array_equal(output, first)
        assert other == sums


def test_stochastic_rounding_draws_anew_for_each_sample_and_node():
    x = np.repeat(drawn(np.random.default_rng(17), 1, 2, 6, 6), 8, axis=0)
    output, _ = narrowed(small(), parse_policy("e5m7(sr=7)"), x)
    assert len(np.unique(output, axis=0)) > 1
    again, _ = narrowed(small(), parse_policy("e5m7(sr=7)"), x)
    np.testing.assert_array_equal(output, again)
    other, _ = narrowed(small(), parse_policy("e5m7(sr=8)"), x)
    assert (output != other).any()


def test_wide_floats_come_close_to_onnxruntime():
    x = drawn(np.random.default_rng(18), 3, 2, 6, 6)
    output, emulation = narrowed(small(), parse_policy("fp32"), x)
    np.testing.assert_allclose(output, reference(small(), x), rtol=1e-4, atol=1e-2)
    assert all(each.tally.error_percentile(50) < 1e-6 for each in emulation.float_sums)


def test_overflow_swamping_and_nan_are_counted():
    rows = [[60000, 60000, 1, 0], [2048, 1, 1, 1], [np.inf, -1, 0, 0], [np.inf, -np.inf, 0, 0]]
    a = np.array(rows, np.float32)
    b = np.ones((4, 1), np.float32)
    output, emulation = narrowed(node("MatMul", {"a": a, "b": b}, ("a",)), parse_policy("fp16"), a)
    (sums,) = emulation.float_sums
    np.testing.assert_array_equal(output.ravel(), [np.inf, 2048, np.inf, np.nan])
    assert (sums.tally.outputs, sums.tally.nan_outputs) == (4, 1)
    assert sums.tally.overflow_outputs == 3  # a sum is infinite on the way, whatever it comes from
    assert (sums.tally.terms, sums.tally.swamped) == (11, 5)
    assert sums.tally.greatest_error == np.inf


def test_only_float_nodes_of_a_mixed_policy_are_floats():
    proto = small()
    policy = parse_policy("Conv=fp16,*=20", fixed="8:4")
    x = drawn(np.random.default_rng(19), 2, 2, 6, 6)
    _, emulation = narrowed(proto, policy, x)
    assert [each.node for each in emulation.float_sums] == ["Conv_0", "Conv_1"]
    assert list(emulation.runners) == ["MatMul_3", "Gemm_4"]


def test_nodes_of_integers_have_no_float_sums():
    w = np.ones((4, 1), np.int8)
    proto = model("(uint8[1,4] a) => (int32[r,c] y) { y = MatMulInteger (a, w) }", w=w)
    with pytest.raises(
        ModelError, match=r"\(MatMulInteger\) cannot be summed in 'fp16': float acc"
    ):
        AccumulatorEmulation(loading.from_proto(proto), parse_policy("fp16"))


def test_operands_that_are_no_floats_are_computed_as_usual_and_named():
    rng = np.random.default_rng(20)
    for a in (rng.normal(size=(2, 3)), rng.integers(0, 9, (2, 3)).astype(np.int32)):
        proto = node("MatMul", {"a": a, "b": a.T.copy()}, ("a",))
        output, emulation = narrowed(proto, parse_policy("fp16"), a)
        np.testing.assert_array_equal(output, plain(proto, a))
        assert emulation.float_sums == ()
        (note,) = emulation.notes
        assert note.startswith(f"stays wide: y: its operands are {a.dtype}")


@pytest.mark.parametrize(
    ("accumulator", "options", "named"),
    [("18", {"operands": "bf16"}, "operands 'bf16', and no accumulator adds floats"),
     ("fp16", {"fixed": "8:5"}, "fixed-point format '8:5', and no accumulator adds integers"),
     ("fp16", {"operands": "fp99"}, "operands 'fp99': 'fp99' is not"),
     ("fp16", {"operands": "nothing=bf16"}, "entry 'nothing=bf16' matches no node")],
)  # fmt: skip
def test_formats_that_fit_no_accumulator_are_named(accumulator, options, named):
    loaded = loading.from_proto(small())
    with pytest.raises(UsageError, match=named):
        AccumulatorEmulation(loaded, parse_policy(accumulator, **options))
