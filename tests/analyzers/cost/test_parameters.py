"""Parameters are what depends on no input: once each in the total, with the node that uses them."""

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.analyzers.cost.graphs import Graph
from tests.graphs import parse
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading, shape_inference


def counted(graph, **options):
    model = graph.model(**options)
    return cost(TypedModel(model, shape_inference.infer(model, {})))


def test_a_shared_weight_counts_for_each_node_and_once_in_the_total():
    graph = Graph(x=(2, 8))
    weight = graph.weight(8, 8)
    graph.op("MatMul", graph.op("MatMul", "x", weight), weight)
    result = counted(graph)
    assert result.table["params"].to_list() == [64, 64]
    assert result.parameters == (64, 256)


def test_a_derived_weight_is_the_weight_it_was_made_from():
    graph = Graph(x=(2, 8))
    weight = graph.weight(4, 8, dtype=TensorProto.INT8)
    real = graph.op(
        "DequantizeLinear", weight, graph.weight(), graph.weight(dtype=TensorProto.INT8)
    )
    transposed = graph.op("Transpose", real, perm=[1, 0])
    product = graph.op("MatMul", "x", transposed)
    result = counted(graph)
    assert result.table["params"].to_dict() == {real: 0, transposed: 0, product: 32}
    assert result.parameters[1] == 32  # as stored, one byte each


def test_packed_weights_take_half_a_byte():
    graph = Graph(x=(2, 8))
    weight = graph.weight(8, 3, dtype=TensorProto.INT4)
    graph.op("MatMul", "x", graph.op("DequantizeLinear", weight, graph.weight()))
    assert counted(graph, opset=21).parameters == (24, 12)


def test_settings_literals_indices_and_statistics_are_no_parameters():
    graph = Graph(x=(2, 4, 8))
    x = graph.op("Reshape", "x", graph.ints(2, 4, 2, 4))
    x = graph.op("BatchNormalization", x, *(graph.weight(4) for _ in range(4)))
    x = graph.op("Mul", x, graph.weight())
    x = graph.op("Gather", x, graph.ints(0, 1), axis=1)
    x = graph.op("Clip", x, graph.weight(), graph.weight())
    graph.op("Where", graph.weight(2, 2, 2, 4, dtype=TensorProto.BOOL), x, x)
    assert counted(graph).table["params"].to_list() == [0, 8, 0, 0, 0, 0]


def test_constant_nodes_and_random_tensors():
    text = """
    <ir_version: 9, opset_import: ["" : 17]>
    main (float[2,2] x) => (float[2,2] y) {
      w = Constant <value = float[2,2] {1, 2, 3, 4}> ()
      noise = RandomNormal <shape = [2, 2]> ()
      [product] a = MatMul (x, w)
      [add] y = Add (a, noise)
    }
    """
    model = loading.from_proto(onnx.parser.parse_model(text))
    table = cost(TypedModel(model, shape_inference.infer(model, {}))).table
    assert table["params"].to_list() == [0, 0, 4, 0]


def test_a_constant_made_of_many_weights_counts_as_itself():
    names = [f"w{i}" for i in range(300)]
    nodes = [
        helper.make_node("Concat", names, ["joined"], "join", axis=0),
        helper.make_node("Gemm", ["x", "joined"], ["y"], "multiply"),
        *(helper.make_node("Add", [f"s{i}", name], [f"s{i + 1}"]) for i, name in enumerate(names)),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "joined",
        [value("x", TensorProto.FLOAT, [2, 300])],
        [value("y", TensorProto.FLOAT, [2, 4]), value("s300", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.ones((1, 4), np.float32), name) for name in ("s0", *names)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = loading.from_proto(proto)
    typed = TypedModel(model, shape_inference.infer(model, {}))
    assert cost(typed).table["params"][:2].to_list() == [0, 1200]
    assert max(map(len, typed.sources.of_tensors.values())) == 100  # the chain lists no more


def test_integer_weights_of_a_product_are_parameters_whatever_their_width():
    text = """
    <ir_version: 9, opset_import: ["" : 17]>
    main (int64[1,2] x) => (int64[1,2] z) <int64[2,2] w = {1, 2, 3, 4}, int64[2] b = {1, 2}> {
      y = MatMul (x, w)
      z = Add (y, b)
    }
    """
    model = loading.from_proto(onnx.parser.parse_model(text))
    assert cost(TypedModel(model, shape_inference.infer(model, {}))).table["params"].to_list() == [
        4,
        0,
    ]


def test_an_embedding_is_a_parameter_though_little_of_it_is_read():
    text = """
    <ir_version: 9, opset_import: ["" : 17]>
    main (int64[1,3] ids) => (float[1,3,2] y) <float[4,2] table = {1,2,3,4,5,6,7,8}> {
      y = Gather (table, ids)
    }
    """
    model = loading.from_proto(onnx.parser.parse_model(text))
    row = cost(TypedModel(model, shape_inference.infer(model, {}))).table.iloc[0]
    assert row["params"] == 8
    assert row["bytes_written"] == 3 * 2 * 4
    assert row["bytes_read"] == 3 * 2 * 4 + 3 * 8


def test_a_sparse_weight_has_the_parameters_it_stores():
    graph = Graph(x=(2, 8))
    graph.op("MatMul", "x", "sparse")
    model = graph.model()
    stored = model.proto.graph.sparse_initializer.add(dims=[8, 4])
    stored.values.CopyFrom(TensorProto(name="sparse", data_type=TensorProto.FLOAT, dims=[5]))
    stored.indices.CopyFrom(TensorProto(name="at", data_type=TensorProto.INT64, dims=[5]))
    row = cost(TypedModel(model, shape_inference.infer(model, {}))).table.iloc[0]
    assert (row["params"], row["param_bytes"]) == (5, 5 * 4 + 5 * 8)


LOOP = """
<ir_version: 8, opset_import: ["": 18]>
g (float[1,4] x, int64 n) => (float[1,4] y) {
  y, last, moved = Loop (n, , x, w, v) <body = b (
    int64 i, bool on, float[1,4] s, float[4,4] kept, float[4,4] changed
  ) => (bool go, float[1,4] t, float[4,4] k, float[4,4] c) {
    go = Identity (on)
    u = MatMul (s, kept)
    t = MatMul (u, changed)
    k = Identity (kept)
    c = Neg (changed)
  }>
}
"""
SCAN = """
<ir_version: 8, opset_import: ["": 18]>
g (float[1,4] x) => (float[1,4] y) {
  y = Scan <num_scan_inputs = 1, body = b (float[1,4] s, float[4,4] layer) => (float[1,4] t) {
    t = MatMul (s, layer)
  }> (x, layers)
}
"""


@pytest.mark.parametrize(
    ("text", "weights", "expected"),
    [(LOOP, {"w": (4, 4), "v": (4, 4)}, 16), (SCAN, {"layers": (3, 4, 4)}, 48)],
)
def test_a_weight_that_a_loop_hands_to_every_step_is_that_of_its_reader(text, weights, expected):
    """A state that changes is no weight; the layers of a Scan are one."""
    proto = parse(text, **{n: np.ones(shape, np.float32) for n, shape in weights.items()})
    model = loading.from_proto(proto)
    result = cost(TypedModel(model, shape_inference.infer(model, {"x": (1, 4)})))
    assert result.parameters[0] == expected
    owners = result.table["params"] > 0
    assert owners.sum() == 1
    assert "MatMul" in result.table.index[owners][0]


@pytest.mark.parametrize("sequences", [-3, 0, 2, 100])
def test_a_scan_may_claim_any_number_of_sequences(sequences):
    text = SCAN.replace("num_scan_inputs = 1", f"num_scan_inputs = {sequences}")
    model = loading.from_proto(parse(text, layers=np.ones((3, 4, 4), np.float32)))
    types = shape_inference.infer(model, {"x": (1, 4)})
    assert cost(TypedModel(model, types)).parameters[0] == (48 if sequences > 0 else 0)


@pytest.mark.parametrize("low", [-1e9, 0.5])
def test_one_number_that_a_mask_writes_has_no_axis_of_waves(low):
    """Where, with a number of no axes, in the file: as every decoder's mask has it."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x, bool[2,4] mask) => (float[2,4] y) {
        scores = MatMul (x, weight)
        y = Where (mask, scores, low)
    }"""
    weight = np.ones((3, 4), np.float32)
    proto = parse(text, weight=weight, low=np.array(low, np.float32))
    proto.producer_name = "pytorch"
    model = loading.from_proto(proto)
    typed = TypedModel(model, shape_inference.infer(model, {}))
    assert cost(typed).parameters == (weight.size, weight.nbytes)
