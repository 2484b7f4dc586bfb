"""Bit operations: MACs x bits of the activation x bits of the weight."""

import json

import numpy as np
import onnx
import onnx.parser
import pytest

import tracer
from tests.graphs import parse
from tracer.analyzers.views import render

QDQ = """
<ir_version: 10, opset_import: ["": 21]>
qdq (float[1,16] x) => (float[8,1] y) <float s = {0.5}, uint8 z = {0}>
{ q = QuantizeLinear (x, s, z)  a = DequantizeLinear (q, s, z)
  row = Reshape (a, shape)  column = Transpose <perm = [1, 0]> (row)
  weights = DequantizeLinear (w, s)
  [product] y = MatMul (weights, column) }
"""


def stored(dtype: int) -> onnx.TensorProto:
    return onnx.helper.make_tensor("w", dtype, [8, 16], np.ones(128, int).tolist())


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(onnx.TensorProto.INT8, 8), (onnx.TensorProto.INT4, 4), (onnx.TensorProto.UINT4, 4)],
)
def test_factors_have_their_width_before_they_are_dequantised(dtype, bits):
    proto = onnx.parser.parse_model(QDQ)
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [1, 16])
    proto.graph.initializer.extend([stored(dtype), shape])
    nodes = tracer.count(proto).nodes.set_index("node")
    assert nodes.loc["product", "bops"] == 8 * 16 * bits * 8
    assert nodes.loc["product", "param_bytes"] == 8 * 16 * bits // 8


QCDQ = """
<ir_version: 8, opset_import: ["": 17]>
qcdq (float[3,16] x, int8 high) => (float[3,8] y) <float s = {0.5}, uint8 z = {0}, int8 c = {0}> {
  q = QuantizeLinear (x, s, z)  limited = Clip (q, low, most)  a = DequantizeLinear (limited, s, z)
  v = QuantizeLinear (w, s, c)  narrow = Clip (v, least, LIMIT)  b = DequantizeLinear (narrow, s, c)
  [product] y = MatMul (a, b)
}
"""


@pytest.mark.parametrize(
    ("most", "least", "limit", "bits"),
    [(3, -1, 1, (2, 2)), (3, -2, 1, (2, 2)), (15, -7, 7, (4, 4)), (1, -1, 0, (1, 1)),
     (16, -8, 8, (5, 5)), (255, -128, 127, (8, 8)), (3, 1, 3, (2, 2)), (3, -1, None, (2, 8))],
)  # fmt: skip
def test_integers_that_a_clip_limits_have_the_bits_of_its_limits(most, least, limit, bits):
    text = QCDQ.replace("LIMIT", "high" if limit is None else "limit")
    stored = {"low": np.uint8(0), "most": np.uint8(most), "least": np.int8(least)}
    stored |= {"limit": np.int8(limit or 0), "w": np.ones((16, 8), np.float32)}
    nodes = tracer.count(parse(text, **stored)).nodes.set_index("node")
    assert nodes.loc["product", "bops"] == 3 * 16 * 8 * bits[0] * bits[1]


@pytest.mark.parametrize(("dtype", "bits"), [(np.float32, 32), (np.float16, 16), (np.float64, 64)])
def test_floats_have_the_width_of_their_type(dtype, bits):
    kind = {np.float32: "float", np.float16: "float16", np.float64: "double"}[dtype]
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({kind}[3,4] x) => ({kind}[3,5] y) {{ [p] y = MatMul (x, w) }}"""
    nodes = tracer.count(parse(text, w=np.ones((4, 5), dtype))).nodes.set_index("node")
    assert nodes.loc["p", "bops"] == 3 * 4 * 5 * bits * bits


def test_a_node_without_macs_has_no_bit_operations():
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[3,4] x) => (float[3,4] y) { y = Relu (x) }"""
    assert tracer.count(parse(text)).nodes["bops"].to_list() == [0]


def test_quantised_weights_behind_thousands_of_moves_keep_their_width():
    nodes = [onnx.helper.make_node("DequantizeLinear", ["w", "s"], ["t0"])]
    for i in range(3_000):
        nodes.append(onnx.helper.make_node("Transpose", [f"t{i}"], [f"t{i + 1}"], perm=[0, 1]))
    nodes.append(onnx.helper.make_node("MatMul", ["t3000", "x"], ["y"], name="product"))
    value = onnx.helper.make_tensor_value_info
    scale = onnx.helper.make_tensor("s", 1, [], [0.5])
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", 1, [16, 2])], [value("y", 1, [8, 2])],
        [stored(onnx.TensorProto.INT8), scale],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 21)]
    table = tracer.count(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)).nodes
    # onnxruntime multiplies floats here: x was never quantised
    assert table.set_index("node").loc["product", "bops"] == 8 * 16 * 2 * 32 * 32


def test_json_has_totals():
    trace = tracer.count("models/lenet/lenet.int8.onnx")
    (run,) = json.loads(render(trace, "json"))["runs"]
    assert run["totals"]["macs"] == 651_720  # as published, see test_lenet
    assert run["totals"]["bops"] == 651_720 * 8 * 8
    assert run["totals"]["nodes_unknown"] == 0
