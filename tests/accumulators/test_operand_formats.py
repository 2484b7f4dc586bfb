"""Operand formats, against ml_dtypes and ONNX's reference operators."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tracer.accumulators.engine.float_arithmetic import cast
from tracer.accumulators.spec.operand_format import OPERAND_NAMES, operand_format
from tracer.errors import UsageError

TYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8-e4m3": ml_dtypes.float8_e4m3fn,
    "fp8-e5m2": ml_dtypes.float8_e5m2, "fp6-e2m3": ml_dtypes.float6_e2m3fn,
    "fp6-e3m2": ml_dtypes.float6_e3m2fn, "fp4-e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
BLOCKS = {
    "mxfp8-e4m3": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, 8),
    "mxfp8-e5m2": (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2, 15),
    "mxfp4": (TensorProto.FLOAT4E2M1, ml_dtypes.float4_e2m1fn, 2),
}
"""ONNX's and numpy's type of elements, and the exponent of the largest number."""


def numbers(*shape, seed=0, spread=6):
    random = np.random.default_rng(seed)
    values = random.normal(size=shape) * np.exp2(random.integers(-spread, spread, shape))
    return values.astype(np.float32)


def onnx_block(operator, block, axis, types, *arrays, **attributes):
    """Runs ONNX's reference QuantizeLinear or DequantizeLinear, of opset 25."""
    names = [f"x{n}" for n in range(len(arrays))]
    node = helper.make_node(operator, names, ["y"], axis=axis, block_size=block, **attributes)
    inputs = [helper.make_tensor_value_info(name, kind, array.shape)
              for name, kind, array in zip(names, types, arrays, strict=True)]  # fmt: skip
    output = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))[0]


@pytest.mark.parametrize("name", TYPES)
def test_plain_formats_are_cast_as_ml_dtypes_casts(name):
    values = numbers(40, 50)
    got = cast(values, operand_format(name))
    np.testing.assert_array_equal(got.values, values.astype(TYPES[name]).astype(np.float32))
    assert (got.scales, got.factor) == (1, 1)


def test_tf32_is_truncated_as_tensor_cores_read_it():
    values = numbers(1000)
    want = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    np.testing.assert_array_equal(cast(values, operand_format("tf32")).values, want)


@pytest.mark.parametrize(("name", "axes"), [("int8", None), ("int8(channel)", 1)])
def test_int8_is_that_of_onnx(name, axes):
    values = numbers(6, 33)
    got = cast(values, operand_format(name), axis=1)
    scale = np.abs(values).max(axis=axes, keepdims=True) / np.float32(127)
    np.testing.assert_array_equal(got.factor, scale)
    for row in range(6):
        one = scale[min(row, len(scale) - 1), 0]
        node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
        graph = helper.make_graph(
            [node], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [33]),
             helper.make_tensor_value_info("s", TensorProto.FLOAT, []),
             helper.make_tensor_value_info("z", TensorProto.INT8, [])],
            [helper.make_tensor_value_info("y", TensorProto.INT8, [33])],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        feeds = {"x": values[row], "s": one, "z": np.int8(0)}
        (codes,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_array_equal(got.elements[row], codes)
        np.testing.assert_array_equal(got.values[row], codes * one)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("axis", [0, 1])
def test_mx_is_what_onnx_quantises_and_dequantises_with_e8m0_scales(name, axis):
    kind, dtype, top = BLOCKS[name]
    values = numbers(64, 96)
    got = cast(values, operand_format(name), axis)
    blocks = np.abs(values).reshape((2, 32, 96) if axis == 0 else (64, 3, 32))
    want = np.exp2(np.floor(np.log2(blocks.max(axis + 1))) - top)
    np.testing.assert_array_equal(got.scales, want)
    scales = got.scales.astype(ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(scales.astype(np.float32), want)  # E8M0 holds each scale
    codes = got.elements.astype(dtype)
    np.testing.assert_array_equal(codes.astype(np.float32), got.elements)
    back = onnx_block("DequantizeLinear", 32, axis, (kind, TensorProto.FLOAT8E8M0), codes, scales,
                      output_dtype=TensorProto.FLOAT)  # fmt: skip
    np.testing.assert_array_equal(got.values, back)
    zero = np.zeros(got.scales.shape, dtype)
    quantised = onnx_block("QuantizeLinear", 32, axis, (TensorProto.FLOAT, TensorProto.FLOAT, kind),
                           values, got.scales, zero)  # fmt: skip
    np.testing.assert_array_equal(codes.astype(np.float32), quantised.astype(np.float32))


def test_nvfp4_is_what_two_nodes_of_onnx_dequantise():
    values = numbers(8, 48, spread=3)
    got = cast(values, operand_format("nvfp4"), axis=1)
    whole = np.abs(values).max() / np.float32(6 * 448)
    largest = np.abs(values).reshape(8, 3, 16).max(2)
    blocks = (largest / (np.float32(6) * whole)).astype(ml_dtypes.float8_e4m3fn)
    scales = onnx_block("DequantizeLinear", 3, 1, (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT),
                        blocks, np.full((8, 1), whole))  # fmt: skip
    np.testing.assert_array_equal(got.scales * got.factor, scales)
    codes = got.elements.astype(ml_dtypes.float4_e2m1fn)
    back = onnx_block("DequantizeLinear", 16, 1, (TensorProto.FLOAT4E2M1, TensorProto.FLOAT),
                      codes, scales)  # fmt: skip
    np.testing.assert_array_equal(got.values, back)
    np.testing.assert_array_less(np.abs(got.values - values), np.repeat(scales, 16, 1) * 1.0001)


def test_elements_of_nvfp4_round_to_nearest_at_the_published_bounds():
    """Between .25 .75 1.25 1.75 2.5 3.5 5, ties to the even code (ModelOpt)."""
    bounds = np.float32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    got = cast(bounds, operand_format("fp4-e2m1")).values
    np.testing.assert_array_equal(got, [0, 1, 1, 2, 2, 4, 4])


@pytest.mark.parametrize("name", ["mxfp8-e4m3", "mxfp4", "nvfp4", "mxint8", "int8(channel)"])
def test_a_last_block_may_be_short(name):
    values = numbers(3, 70)
    whole = cast(np.pad(values, ((0, 0), (0, 26))), operand_format(name), axis=1)
    got = cast(values, operand_format(name), axis=1)
    np.testing.assert_array_equal(got.values, whole.values[:, :70])


def test_mxint8_has_elements_of_six_fraction_bits():
    values = np.zeros(32, np.float32)
    values[:4] = [3.9, 1.5, -0.7, 2.0**-6]
    got = cast(values, operand_format("mxint8"))
    assert got.scales == 2
    np.testing.assert_array_equal(got.elements[:4], [1.953125, 0.75, -0.34375, 0])
    values[0] = 3.999
    assert cast(values, operand_format("mxint8")).elements[0] == 127 / 64


@pytest.mark.parametrize("name", OPERAND_NAMES)
def test_zeros_empty_arrays_and_nan(name):
    form = operand_format(name)
    np.testing.assert_array_equal(cast(np.zeros((2, 40)), form, 1).values, np.zeros((2, 40)))
    assert cast(np.zeros((0, 40)), form, 1).values.shape == (0, 40)
    assert cast(np.zeros((4, 0)), form, 1).values.shape == (4, 0)
    values = np.ones((2, 40), np.float32)
    values[0, 3] = np.nan
    assert np.isnan(cast(values, form, 1).values[0, 3])


def test_a_number_that_is_not_finite_makes_its_block_nan():
    values = np.ones((1, 64), np.float32)
    values[0, 40] = np.inf
    got = cast(values, operand_format("mxfp8-e4m3"), 1)
    np.testing.assert_array_equal(np.isnan(got.values[0]), np.arange(64) >= 32)


@given(st.integers(0, 999), st.sampled_from(["fp8-e4m3(tensor)", "fp8-e5m2(channel)", "int8"]))
def test_the_largest_number_of_a_scale_is_kept(seed, name):
    values = numbers(5, 20, seed=seed)
    got = cast(values, operand_format(name), axis=1)
    largest = np.unravel_index(np.abs(values).argmax(), values.shape)
    assert got.values[largest] == pytest.approx(values[largest], rel=1e-6)


@pytest.mark.parametrize(
    "name", [*OPERAND_NAMES, "fp8-e4m3(saturate)", "fp8-e4m3(tensor)", "int8(channel)", "e4m7:10"]
)
def test_a_format_is_spelled_as_it_is_read(name):
    assert operand_format(str(operand_format(name))) == operand_format(name)
    assert str(operand_format(name)) == name


@pytest.mark.parametrize(
    "name", ["int4", "fp8-e4m3(up)", "int8(saturate)", "fp16(", "mxfp4(tensor)"]
)
def test_other_formats_are_refused(name):
    with pytest.raises(UsageError, match=r"is not a format of operands|is not an option"):
        operand_format(name)
