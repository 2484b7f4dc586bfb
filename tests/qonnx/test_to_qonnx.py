"""QDQ graphs as QONNX: values as of onnxruntime, and the bits that the graph lets through."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tests.accumulators.qcdq import Graph, network
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization.bit_reduction import narrow
from tracer.quantization.to_qonnx import left_conversions, to_qonnx

ROOT = Path(__file__).parents[2]


def _quants(proto):
    """The bits, sign and narrow range of every Quant, but those of biases."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    found = []
    for node in proto.graph.node:
        if node.op_type == "Quant" and getattr(stored.get(node.input[0]), "ndim", 2) > 1:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            found.append((int(stored[node.input[3]]), attributes["signed"], attributes["narrow"]))
    return found


def _onnxruntime(proto, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def _assert_same(proto, x):
    converted = to_qonnx(proto)
    (mine,) = Interpreter(converted).run(None, {proto.graph.input[0].name: x})
    np.testing.assert_allclose(mine, _onnxruntime(proto, x), rtol=1e-4, atol=1e-4)
    assert left_conversions(converted) == ()
    return converted


@pytest.mark.parametrize(("weights", "activations"), [(2, 2), (3, 5), (4, 4), (8, 8)])
def test_a_network_as_brevitas_exports_it(weights, activations):
    proto, _ = network(weights, activations)
    x = np.random.default_rng(0).normal(0, 0.4, (2, 3, 16, 16)).astype(np.float32)
    quants = _quants(_assert_same(proto, x))
    narrowest = [(weights, 1, 1)] * 3 + [(activations, 0, 0)] * 2 + [(8, 1, 0)]
    assert sorted(quants) == sorted(narrowest)


@pytest.mark.parametrize("bits", [(None, None), (4, 3)])
def test_a_shipped_model(bits):
    proto = onnx.load(ROOT / "models" / "lenet" / "lenet.int8.onnx")
    proto = proto if bits[0] is None else narrow(proto, *bits)
    shape = [d.dim_value or 3 for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).random(shape, dtype=np.float32)
    quants = _quants(_assert_same(proto, x))
    assert {b for b, _, _ in quants} == ({8} if bits[0] is None else set(bits))


def _pair(x, dtype, zero, clip=None, scale=0.25, axis=1):
    graph = Graph()
    y = graph.quantized("x", np.float32(scale), np.asarray(zero, dtype), clip, axis=axis)
    return graph.model(y, x.shape)


@pytest.mark.parametrize(
    ("dtype", "zero", "clip", "quant"),
    [
        (np.int8, 0, None, (8, 1, 0)),
        (np.int8, 0, (-7, 7), (4, 1, 1)),
        (np.int8, 4, (-8, 7), (4, 1, 0)),
        (np.uint8, 0, (0, 1), (1, 0, 0)),
        (np.uint8, 130, None, (8, 0, 0)),
        (np.uint8, 10, (3, 12), (4, 0, 0)),  # no Quant clips so: a Clip of floats does
        (np.int8, 0, (-100, 90), (8, 1, 1)),
    ],
)
def test_every_kind_of_integers(dtype, zero, clip, quant):
    x = np.linspace(-60, 60, 801, dtype=np.float32)[None]
    proto = _pair(x, dtype, zero, clip)
    converted = _assert_same(proto, x)
    assert _quants(converted) == [quant]
    is_clipped = any(node.op_type == "Clip" for node in converted.graph.node)
    assert is_clipped == (clip in ((3, 12), (-100, 90)))


def test_scales_of_channels_that_are_not_the_last():
    scale = np.float32([0.5, 0.25, 1])
    x = np.random.default_rng(2).normal(0, 20, (2, 3, 4, 5)).astype(np.float32)
    _assert_same(_pair(x, np.int8, [0, 3, 0], scale=scale), x)


def test_what_has_no_quant_stays():
    graph = Graph()
    scale, zero = graph.constant(np.float32(0.5)), graph.constant(np.uint8(0))
    y = graph.add("QuantizeLinear", "x", scale, zero)
    z = graph.add("DequantizeLinear", y, scale, zero)
    other = graph.add("DequantizeLinear", y, graph.constant(np.float32(0.25)), zero)
    proto = graph.model(graph.add("Add", z, other), (4,))
    converted = to_qonnx(proto)
    assert left_conversions(converted) == (y, other)
    x = np.float32([-1, 0.3, 7, 200])
    (mine,) = Interpreter(converted).run(None, {"x": x})
    np.testing.assert_array_equal(mine, _onnxruntime(proto, x))


def test_a_float_model_has_nothing_to_convert():
    graph = Graph()
    with pytest.raises(ModelError, match="no DequantizeLinear"):
        to_qonnx(graph.model(graph.add("Relu", "x"), (2,)))


def test_the_original_is_not_changed():
    proto, _ = network(4, 4)
    before = proto.SerializeToString(deterministic=True)
    to_qonnx(proto)
    assert proto.SerializeToString(deterministic=True) == before
