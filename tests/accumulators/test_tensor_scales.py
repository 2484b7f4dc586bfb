"""The scales of tensors against their values: whole multiples of the scale, in range."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

HEAD = """<ir_version: 9, opset_import: ["": 20]>
g (float[2,4,6,6] x) => (float y) {
  q = QuantizeLinear (x, s, z)
  d = DequantizeLinear (q, s, z)
"""
CARRIED = [
    "y = Relu (d)",
    "y = Identity (d)",
    "y = MaxPool <kernel_shape = [2,2], pads = [1,1,0,0]> (d)",
    "r = Relu (d) y = Transpose <perm = [0,2,3,1]> (r)",
    "y = Flatten (d)",
    "y = Reshape (d, shape)",
    "y = Concat <axis = 1> (d, d)",
    "y = Pad (d, pads, zero)",
    "y = Pad (d, pads)",
    "y = Slice (d, start, end)",
    "y = ReduceMax (d)",
    "w = DequantizeLinear <axis = 1> (q, ts, zs) y = Relu (w)",
    "w = DequantizeLinear <axis = 0> (i, ws, wz) y = Transpose <perm = [1,0]> (w)",
]
LOST = [
    "y = Sigmoid (d)",
    "y = Pad (d, pads, one)",
    "y = Add (d, d)",
    "y = AveragePool <kernel_shape = [2,2]> (d)",
    "e = DequantizeLinear (q, t, z) y = Concat <axis = 1> (d, e)",
    "w = DequantizeLinear <axis = 1> (q, ts, zs) y = Flatten (w)",
    "w = DequantizeLinear <axis = 0> (i, ws, wz) y = Transpose (w)",
    "y = Identity (x)",
]
WEIGHTS = {
    "s": np.float32(0.037), "z": np.uint8(120), "t": np.float32(0.05),
    "ts": np.array([0.1, 0.2, 0.3, 0.4], np.float32), "zs": np.zeros(4, np.uint8),
    "shape": np.array([8, -1]), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "zero": np.float32(0), "one": np.float32(1), "start": np.array([1]), "end": np.array([2]),
    "i": np.arange(-6, 6, dtype=np.int8).reshape(3, 4),
    "ws": np.array([0.1, 0.2, 0.3], np.float32), "wz": np.array([0, 1, -2], np.int8),
}  # fmt: skip


def model(body: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(HEAD + body + "}")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for name, value in WEIGHTS.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return proto


@pytest.mark.parametrize("body", CARRIED)
def test_a_scale_goes_where_elements_go(body):
    loaded = loading.from_proto(model(body))
    scale = TensorScales(loaded).of("y", loaded.nodes[-1].scope)
    x = np.random.default_rng(0).normal(0, 4, (2, 4, 6, 6)).astype(np.float32)
    y = Interpreter(loaded).run(None, {"x": x})[0]
    assert scale is not None
    integers, step = scale.integers(y), scale.step
    if step.size > 1:
        step = step.reshape([-1 if axis == scale.axis else 1 for axis in range(y.ndim)])
    np.testing.assert_allclose(integers * step, y, rtol=1e-6)
    assert integers.min() >= scale.low and integers.max() <= scale.high


@pytest.mark.parametrize("body", LOST)
def test_a_scale_is_not_invented(body):
    loaded = loading.from_proto(model(body))
    assert TensorScales(loaded).of("y", loaded.nodes[-1].scope) is None


def test_what_is_stored_is_constant():
    loaded = loading.from_proto(model(CARRIED[-1]))
    scales, scope = TensorScales(loaded), loaded.nodes[-1].scope
    assert scales.constant("y", scope) and scales.constant("w", scope)
    assert not scales.constant("d", scope)
    integers = scales.stored_integers("w", scope)
    np.testing.assert_array_equal(integers, WEIGHTS["i"] - [[0], [1], [-2]])
