"""The axis of the channels: where a filter of zeros leaves zeros, as onnxruntime computes it."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.graphs import parse
from tracer.graph.operators import channel_axes

IMAGES = """
<ir_version: 10, opset_import: ["": 20]>
g (float[2,3,6,6] x) => (float y) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w)
  b = Relu (a)
  c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
  d = Transpose <perm = [0, 2, 3, 1]> (c)
  e = Tanh (d)
  f = Transpose (e)
  h = Mul (e, e)
  i, j = Split <axis = 1, num_outputs = 2> (h)
  y = ReduceSum <keepdims = 0> (f)
}
"""

TOKENS = """
<ir_version: 10, opset_import: ["": 20]>
g (float[2,7,3] x) => (float y) {
  a = MatMul (x, w)
  b = Relu (a)
  c = Transpose <perm = [0, 2, 1]> (b)
  d = Neg (c)
  e = Concat <axis = 2> (c, d)
  y = ReduceSum <keepdims = 0> (e)
}
"""

SILENT = 2
"""The channel whose weights are 0."""


@pytest.mark.parametrize(
    ("text", "weight", "axis"), [(IMAGES, (5, 3, 3, 3), 0), (TOKENS, (3, 5), 1)]
)
def test_a_silent_channel_is_silent_along_the_axis(text, weight, axis):
    draw = np.random.default_rng(0).uniform
    weights = draw(0.5, 1, weight).astype(np.float32)
    np.moveaxis(weights, axis, 0)[SILENT] = 0
    proto = parse(text, w=weights)
    axes = channel_axes(proto.graph)
    names = [name for node in proto.graph.node for name in node.output]
    assert axes.keys() == {*names} - {"y"}
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in axes)
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    session = ort.InferenceSession(proto.SerializeToString())
    values = session.run(list(axes), {"x": draw(0.5, 1, shape).astype(np.float32)})
    for found, value in zip(axes.values(), values, strict=True):
        assert value.shape[found] == 5
        silent = [place for place in range(5) if not value.take(place, found).any()]
        assert silent == [SILENT]


UNKNOWN = """
<ir_version: 10, opset_import: ["": 20]>
g (float[2,4,6,6] x) => (float[2,4,6,6] y) {
  a = Conv (x, w)
  b = Transpose <perm = [0, 1, 3, 2]> (x)
  c = MatMul (a, b)
  d = Reshape (a, s)
  e = Transpose <perm = [0, 3, 2, 1]> (a)
  y = Add (a, x)
}
"""


def test_what_other_nodes_compute_is_not_known():
    weights = np.ones((4, 4, 1, 1), np.float32)
    proto = parse(UNKNOWN, w=weights, s=np.array([2, 144]))
    assert channel_axes(proto.graph) == {"a": 1, "e": 3}
