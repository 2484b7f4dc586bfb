"""The additions and multiplications of the coursework's integer LeNet, layer by layer."""

import onnx.parser
import pytest

from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading, shape_inference

LENET = """
<ir_version: 9, opset_import: ["" : 18]>
lenet (float[N,3,32,32] x, float[6,3,5,5] w1, float[16,6,5,5] w2, float[400,120] w3,
       float[120,84] w4, float[84,10] w5, float[10] b5) => (float[N,10] y) {
  [conv1] a = Conv (x, w1)
  b = Relu (a)
  c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
  [conv2] d = Conv (c, w2)
  e = Relu (d)
  f = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (e)
  g = Flatten (f)
  [fc1] h = MatMul (g, w3)
  i = Relu (h)
  [fc2] j = MatMul (i, w4)
  k = Relu (j)
  [fc3] y = Gemm (k, w5, b5)
}
"""

MULS = {"conv1": 352_800, "conv2": 240_000, "fc1": 48_000, "fc2": 10_080, "fc3": 840}
ADDS = {
    "channelwise": MULS | {"conv1": 366_912, "conv2": 249_600, "fc3": 850},
    "plain": MULS | {"fc3": 850},
}


@pytest.fixture(scope="module")
def lenet():
    return loading.from_proto(onnx.parser.parse_model(LENET))


@pytest.mark.parametrize("convention", ADDS)
@pytest.mark.parametrize("batch", [1, 7])
def test_additions_and_multiplications_of_every_layer(lenet, convention, batch):
    types = shape_inference.infer(lenet, {"x": (batch, 3, 32, 32)})
    table = cost(TypedModel(lenet, types), convention=convention).table
    layers = table.loc[list(MULS)]
    assert (layers["adds"] // batch).to_dict() == ADDS[convention]
    assert (layers["muls"] // batch).to_dict() == MULS
    assert layers["macs"].to_list() == layers["muls"].to_list()


def test_flops_do_not_depend_on_the_convention(lenet):
    types = shape_inference.infer(lenet, {"x": (1, 3, 32, 32)})
    plain, channelwise = (cost(TypedModel(lenet, types), convention=name) for name in ADDS)
    assert plain.table["flops"].equals(channelwise.table["flops"])
    assert plain.table.loc["fc3", "flops"] == 2 * 840 + 10
