"""MACs that no kernel leaves out: onnxruntime counts those of ones that are multiplied by ones."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel, unavoidable_macs
from tracer.graph import loading, shape_inference

CONVOLUTIONS = [
    {},
    {"pads": [1, 1, 1, 1]},
    {"pads": [2, 0, 1, 3]},
    {"pads": [1, 1, 1, 1], "strides": [2, 3]},
    {"pads": [4, 4, 4, 4], "dilations": [3, 2]},
    {"pads": [1, 1, 1, 1], "group": 2},
    {"auto_pad": "VALID"},
]


def least(op_type, shape, weight, **attributes):
    """The MACs of one node, and the sum of its outputs for ones."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "w"], ["y"], "n", **attributes)],
        "g",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones(weight, np.float32), "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = loading.from_proto(proto)
    typed = TypedModel(model, shape_inference.infer(model, {"x": tuple(shape)}))
    macs = cost(typed).table["macs"].to_dict()
    session = ort.InferenceSession(proto.SerializeToString())
    (y,) = session.run(None, {"x": np.ones(shape, np.float32)})
    return unavoidable_macs(typed, macs).get("n"), macs["n"], y.sum(dtype=np.float64)


@pytest.mark.parametrize("attributes", CONVOLUTIONS)
@pytest.mark.parametrize("size", [(7, 9), (4, 3)])
def test_padding_of_a_convolution_may_be_left_out(attributes, size):
    weight = [6, 4 // attributes.get("group", 1), 3, 2]
    found, counted, ones = least("Conv", [2, 4, *size], weight, **attributes)
    assert found == pytest.approx(ones)
    assert (found < counted) is ("pads" in attributes)


def test_a_matrix_product_takes_them_all():
    found, counted, ones = least("MatMul", [3, 5, 8], [8, 6])
    assert found == counted == ones


def test_of_other_operators_and_unknown_paddings_nothing_is_sure():
    assert not least("Conv", [1, 1, 5, 5], [1, 1, 3, 3], auto_pad="SAME_UPPER")[0]
    assert least("ConvTranspose", [1, 1, 5, 5], [1, 1, 3, 3])[0] is None
