"""onnxruntime's operators on quantised tensors, held against onnxruntime itself.

Results are the same bit for bit, also where the exact value is halfway between two integers, as
scales of few digits make it often. That holds for onnxruntime's kernels for x86-64: those for other
processors add in other orders, so one quantum is allowed there. Weights have 7 bits: see
`test_against_onnxruntime`.
"""

from __future__ import annotations

import platform

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests.interpreter.models import onnxruntime, quick, value_info
from tests.interpreter.test_against_onnxruntime import SEVEN_BITS
from tracer.interpreter.interpreter import Interpreter

PAIRS = [((2, 3, 37), (2, 3, 37)), ((2, 3, 37), (3, 1)), ((4, 1), (1, 33)), ((5,), ())]
TYPES = st.sampled_from([np.uint8, np.int8])
SCALES = st.floats(1 / 128, 2, width=32) | st.sampled_from([0.01, 0.02, 0.03, 0.04, 0.3, 0.5, 0.8])
HALVES = 0 if platform.machine() in ("x86_64", "AMD64") else 1
"""Quanta by which a value halfway between two integers may differ."""
ELEMENT = {np.uint8: onnx.TensorProto.UINT8, np.int8: onnx.TensorProto.INT8}


def contrib(op_type, feeds, result=onnx.TensorProto.UINT8, **attributes):
    """A model of one operator of com.microsoft; parameters are constants, as onnxruntime wants."""
    names = [name if value is not None else "" for name, value in feeds.items()]
    node = helper.make_node(op_type, names, ["y"], domain="com.microsoft", **attributes)
    fed = {n: v for n, v in feeds.items() if v is not None and v.ndim and "_" not in n}
    weights = [
        onnx.numpy_helper.from_array(v, n)
        for n, v in feeds.items()
        if v is not None and n not in fed
    ]
    graph = helper.make_graph(
        [node], "contrib", [value_info(n, v) for n, v in fed.items()],
        [helper.make_tensor_value_info("y", result, None)], weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), fed


def compare(op_type, feeds, dtype, quanta=0, **attributes):
    model, fed = contrib(op_type, feeds, ELEMENT[dtype], **attributes)
    (expected,) = onnxruntime(model, fed)
    (result,) = Interpreter(model).run(None, fed)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.dtype == dtype
    difference = np.abs(result.astype(int) - expected.astype(int))
    assert difference.max(initial=0) <= quanta
    return difference


def quantised(dtype, *shape, seed=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def parameters(name, dtype, scale, seed):
    """A scale and a zero point."""
    zero = quantised(dtype, seed=seed)
    return {f"{name}_scale": np.array(scale, np.float32), f"{name}_zero": np.array(zero, dtype)}


@quick
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 70), st.integers(1, 9)),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(), SCALES,
)  # fmt: skip
def test_qgemm(sizes, trans_a, trans_b, per_column, bias, scale):
    rows, depth, width = sizes
    rng = np.random.default_rng(depth)
    shape = (width, depth) if trans_b else (depth, width)
    feeds = {
        "a": quantised(np.uint8, *((depth, rows) if trans_a else (rows, depth))),
        **parameters("a", np.uint8, scale, 1),
        "b_": rng.integers(*SEVEN_BITS, shape, np.int8),
        "b_scale": np.linspace(0.01, 0.03, width if per_column else 1, dtype=np.float32),
        "b_zero": np.zeros(width if per_column else 1, np.int8),
        "c_": rng.integers(-500, 500, (width,)).astype(np.int32) if bias else None,
        **parameters("y", np.uint8, scale * np.sqrt(depth), 3),
    }
    if not per_column:
        feeds["b_scale"], feeds["b_zero"] = feeds["b_scale"].reshape(()), np.array(0, np.int8)
    compare("QGemm", feeds, np.uint8, transA=int(trans_a), transB=int(trans_b), alpha=1.0)


@quick
@given(
    TYPES, SCALES, SCALES, st.integers(1, 2), st.sampled_from([1, 2]), st.integers(0, 1),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_convolution(dtype, scale, wanted, stride, group, pad, last, per_channel, bias):
    x = quantised(dtype, 2, 4, 7, 6)
    maps = 6 if per_channel else 1
    weights = np.random.default_rng(1).integers(*SEVEN_BITS, (6, 4 // group, 3, 2), np.int8)
    feeds = {
        "x": np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x,
        **parameters("x", dtype, scale, 1), "w_": weights,
        "w_scale": np.linspace(0.01, 0.03, maps, dtype=np.float32).reshape([maps] * per_channel),
        "w_zero": np.zeros([maps] * per_channel, np.int8),
        **parameters("y", dtype, wanted, 2),
        "b_": np.arange(-600, 600, 200).astype(np.int32) if bias else None,
    }  # fmt: skip
    compare(
        "QLinearConv", feeds, dtype, quanta=HALVES, channels_last=int(last), group=group,
        strides=[stride, 1], pads=[pad, 0, 1, pad],
    )  # fmt: skip


@pytest.mark.parametrize("bias", [True, False])
def test_qgemm_without_an_output_scale_gives_floats(bias):
    rng = np.random.default_rng(0)
    feeds = {
        "a": quantised(np.uint8, 3, 20), **parameters("a", np.uint8, 0.1, 1),
        "b_": rng.integers(*SEVEN_BITS, (20, 4), np.int8), **parameters("b", np.int8, 0.02, 2),
        "c_": rng.integers(-500, 500, (4,)).astype(np.int32) if bias else None,
    }  # fmt: skip
    feeds["b_zero"] = np.array(0, np.int8)
    model, fed = contrib("QGemm", feeds, onnx.TensorProto.FLOAT, alpha=1.0)
    (expected,) = onnxruntime(model, fed)
    np.testing.assert_allclose(Interpreter(model).run(None, fed)[0], expected, 1e-6)


@quick
@given(
    st.sampled_from(["QLinearAdd", "QLinearMul"]), TYPES, SCALES, SCALES, SCALES,
    st.sampled_from(PAIRS),
)  # fmt: skip
def test_sums_and_products_of_elements(op_type, dtype, first, second, third, shapes):
    a, b = (quantised(dtype, *shape, seed=i) for i, shape in enumerate(shapes))
    feeds = {
        "a": a, **parameters("a", dtype, first, 2),
        "b": np.asarray(b).reshape(shapes[1] or (1,)), **parameters("b", dtype, second, 3),
        **parameters("c", dtype, third, 4),
    }  # fmt: skip
    compare(op_type, feeds, dtype, quanta=HALVES)


@quick
@given(TYPES, SCALES, SCALES, st.booleans(), st.integers(1, 3), st.booleans(), st.booleans())
def test_average_pool(dtype, scale, wanted, include, stride, pad, ceil):
    feeds = {
        "x": quantised(dtype, 2, 3, 7, 9), **parameters("x", dtype, scale, 1),
        **parameters("y", dtype, wanted, 2),
    }  # fmt: skip
    compare(
        "QLinearAveragePool", feeds, dtype, quanta=HALVES, kernel_shape=[3, 2],
        strides=[stride, stride], pads=[1, 1, 1, 0] if pad else [0, 0, 0, 0],
        count_include_pad=int(include), ceil_mode=int(ceil),
    )  # fmt: skip


@quick
@given(TYPES, SCALES, SCALES, st.integers(1, 40), st.booleans())
def test_global_average_pool(dtype, scale, wanted, size, last):
    feeds = {
        "x": quantised(dtype, 2, 3, size, 3), **parameters("x", dtype, scale, 1),
        **parameters("y", dtype, wanted, 2),
    }  # fmt: skip
    compare("QLinearGlobalAveragePool", feeds, dtype, quanta=HALVES, channels_last=int(last))


@quick
@given(TYPES, SCALES, SCALES, st.sampled_from([None, [0], [1, 3], [-1], [-2, 0]]), st.booleans())
def test_mean_over_axes(dtype, scale, wanted, axes, keep):
    """onnxruntime has no kernel for it: what it is defined by is run there, three operators."""
    feeds = {
        "x": quantised(dtype, 2, 3, 5, 4), **parameters("x", dtype, scale, 1),
        **parameters("y", dtype, wanted, 2),
    }  # fmt: skip
    over = {} if axes is None else {"axes": axes}
    model, fed = contrib("QLinearReduceMean", feeds, ELEMENT[dtype], keepdims=int(keep), **over)
    spelt = onnx.ModelProto()
    spelt.CopyFrom(model)
    del spelt.graph.node[:]
    spelt.graph.node.extend(
        (
            helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["real"]),
            helper.make_node("ReduceMean", ["real"], ["mean"], keepdims=int(keep), **over),
            helper.make_node("QuantizeLinear", ["mean", "y_scale", "y_zero"], ["y"]),
        )
    )
    (expected,) = onnxruntime(spelt, fed)
    (result,) = Interpreter(model).run(None, fed)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert np.abs(result.astype(int) - expected.astype(int)).max() <= 1


@quick
@given(TYPES, st.lists(SCALES, min_size=3, max_size=3), st.integers(-3, 2))
def test_concat(dtype, scales, axis):
    feeds = {
        **parameters("y", dtype, scales[0], 1),
        "a": quantised(dtype, 2, 3, 4), **parameters("a", dtype, scales[1], 2),
        "b": quantised(dtype, 2, 3, 4, seed=5), **parameters("b", dtype, scales[2], 3),
    }  # fmt: skip
    compare("QLinearConcat", feeds, dtype, axis=axis)


@quick
@given(st.sampled_from(["QLinearSigmoid", "QLinearLeakyRelu"]), TYPES, SCALES)
def test_activations_of_every_byte(op_type, dtype, scale):
    info = np.iinfo(dtype)
    feeds = {
        "x": np.arange(info.min, info.max + 1).astype(dtype), **parameters("x", dtype, scale, 1),
        **parameters("y", dtype, 1 / 256 if op_type == "QLinearSigmoid" else scale, 2),
    }  # fmt: skip
    attributes = {"alpha": 0.2} if op_type == "QLinearLeakyRelu" else {}
    compare(op_type, feeds, dtype, **attributes)


@quick
@given(
    TYPES,
    st.floats(1 / 128, 0.25, width=32),
    st.sampled_from([(13, -1), (13, 1), (12, 1), (12, 2)]),
)
def test_softmax(dtype, scale, place):
    """onnxruntime looks exponentials up in a table of rounded ones: one quantum is allowed."""
    opset, axis = place
    zero = np.array(np.iinfo(dtype).min, dtype)
    feeds = {
        "x": quantised(dtype, 2, 5, 6), **parameters("x", dtype, scale, 1),
        "y_scale": np.array(1 / 256, np.float32), "y_zero": zero,
    }  # fmt: skip
    compare("QLinearSoftmax", feeds, dtype, quanta=1, opset=opset, axis=axis)


@quick
@given(TYPES, st.lists(SCALES, min_size=3, max_size=3))
def test_where(dtype, scales):
    feeds = {
        "condition": np.random.default_rng(0).integers(0, 2, (3, 4)).astype(bool),
        "x": quantised(dtype, 3, 4), **parameters("x", dtype, scales[0], 1),
        "y0": quantised(dtype, 3, 1, seed=5), **parameters("y0", dtype, scales[1], 2),
        **parameters("z", dtype, scales[2], 3),
    }  # fmt: skip
    compare("QLinearWhere", feeds, dtype)


@quick
@given(st.sampled_from([np.uint8, np.int8, np.uint16, np.int16]), SCALES, st.booleans())
def test_there_and_back_in_the_domain_of_onnxruntime(dtype, scale, per_axis):
    """Before opset 21 it is the only one with 16-bit types."""
    count = 3 if per_axis else 1
    x = (np.random.default_rng(0).normal(0, 90, (3, 40)) * scale).astype(np.float32)
    scales = np.linspace(scale, 2 * scale, count, dtype=np.float32)
    zeros = quantised(dtype, count, seed=4)
    weights = [scales, zeros] if per_axis else [scales.reshape(()), zeros.reshape(())]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], domain="com.microsoft", axis=0),
        helper.make_node(
            "DequantizeLinear", ["q", "s", "z"], ["y"], domain="com.microsoft", axis=0
        ),
    ]
    graph = helper.make_graph(
        nodes, "g", [value_info("x", x)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, x.shape)],
        [onnx.numpy_helper.from_array(w, n) for w, n in zip(weights, "sz", strict=True)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    (expected,) = onnxruntime(model, {"x": x})
    np.testing.assert_array_equal(Interpreter(model).run(None, {"x": x})[0], expected)
