"""Bytes of weights that a graph quantises: as onnx packs the integers that onnxruntime computes."""

import csv
import io
import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import tracer
from tests.accumulators.qcdq import Graph, network
from tests.graphs import parse
from tests.interpreter.models import onnxruntime, quick
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.views import render
from tracer.graph import loading, shape_inference

PACKED = {2: ml_dtypes.int2, 4: ml_dtypes.int4, 8: np.dtype(np.int8)}
ENDS = {2: (-2, 1), 4: (-8, 7), 8: (-128, 127)}
STEP, ZERO = np.float32(0.25), np.int8(0)
MOVES = {"moved": ("Transpose", {"perm": [0, 1]}), "joined": ("Concat", {"axis": 0})}


def weights(*shape):
    return np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)


def table(graph, output, columns):
    """The counted nodes by name, for an input of so many columns."""
    return tracer.count(graph.model(output, (1, columns))).nodes.set_index("node")


def stored_bytes(integers, bits):
    """The bytes of integers in ONNX's type of so many bits; each must fit into it."""
    packed = integers.astype(PACKED[bits])
    assert (packed.astype(np.int64) == integers).all()
    return len(numpy_helper.from_array(packed).raw_data)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_network_quantised_in_its_graph_has_the_bytes_of_its_packed_integers(bits):
    proto, layers = network(bits, bits)
    trace = tracer.count(proto)
    nodes = trace.nodes.set_index("node")
    for layer in layers:
        row = nodes.loc[layer.name]
        packed, channels = stored_bytes(layer.weights, bits), len(layer.weights)
        assert row["params"] == layer.weights.size + channels
        assert row["param_bytes"] == packed + 4 * channels  # the bias stays in floats
    others = nodes.drop(index=[layer.name for layer in layers])
    assert others["param_bytes"].sum() == 0
    total = sum(stored_bytes(layer.weights, bits) for layer in layers) + 4 * (8 + 16 + 10)
    (run,) = json.loads(render(trace, "json"))["runs"]
    rows = csv.DictReader(io.StringIO(render(trace, "csv").decode()))
    assert run["totals"]["param_bytes"] == total == nodes["param_bytes"].sum()
    assert sum(int(row["param_bytes"] or 0) for row in rows) == total


@quick
@given(st.sampled_from([2, 4, 8]), st.integers(1, 40), st.integers(1, 40))
def test_bits_are_packed_into_whole_bytes(bits, rows, columns):
    graph = Graph()
    floats = weights(rows, columns)
    w = graph.quantized(graph.constant(floats), STEP, ZERO, ENDS[bits])
    (real,) = onnxruntime(graph.model(w, (1,)), {"x": np.zeros(1, np.float32)})
    graph.add("Gemm", "x", w, name="y", transB=1)
    row = table(graph, "y", columns).loc["y"]
    assert row["param_bytes"] == stored_bytes(np.rint(real / STEP).astype(np.int64), bits)
    assert row["params"] == floats.size


@pytest.mark.parametrize(("size", "nbytes"), [(1000, 250), (1001, 251)])
def test_two_bit_weights_are_two_bits(size, nbytes):
    graph = Graph()
    w = graph.quantized(graph.constant(weights(1, size)), STEP, ZERO, (-1, 1))
    graph.add("Gemm", "x", w, name="y", transB=1)
    assert table(graph, "y", size).loc["y", "param_bytes"] == nbytes


def quantized(graph, kind, floats):
    """Weights that are quantised in the graph in several ways."""
    integers = np.clip(np.rint(floats / STEP), -7, 7).astype(np.int8)
    if kind == "stored":
        return graph.add("DequantizeLinear", graph.constant(integers), graph.constant(STEP))
    if kind == "stored and limited":
        ends = (graph.constant(np.int8(end)) for end in (-7, 7))
        q = graph.add("Clip", graph.constant(integers), *ends)
        return graph.add("DequantizeLinear", q, graph.constant(STEP))
    clip = None if kind == "not limited" else (-7, 7)
    return graph.quantized(graph.constant(floats), STEP, ZERO, clip, between=MOVES.get(kind))


@pytest.mark.parametrize(
    ("kind", "bits"),
    [("stored", 8), ("stored and limited", 4), ("not limited", 8), ("limited", 4), ("moved", 4),
     ("joined", 4)],
)  # fmt: skip
def test_parameters_and_bit_operations_have_one_width(kind, bits):
    graph, floats = Graph(), weights(6, 5)
    x = graph.quantized("x", STEP, ZERO)
    graph.add("Gemm", x, quantized(graph, kind, floats), name="y", transB=1)
    row = table(graph, "y", 5).loc["y"]
    assert row["bops"] == 6 * 5 * 8 * bits
    assert row["param_bytes"] == 6 * 5 * bits / 8


def test_an_operator_that_reads_integers_has_their_bytes():
    graph = Graph()
    q = graph.add(
        "QuantizeLinear", graph.constant(weights(5, 6)), *map(graph.constant, (STEP, ZERO))
    )
    w = graph.add("Clip", q, *(graph.constant(np.int8(end)) for end in (-2, 1)))
    x = graph.add("QuantizeLinear", "x", *map(graph.constant, (STEP, ZERO)))
    scale = [*map(graph.constant, (STEP, ZERO))]
    product = graph.add("QLinearMatMul", x, *scale, w, *scale, *scale, name="product")
    row = table(graph, graph.add("DequantizeLinear", product, *scale), 5).loc["product"]
    assert (row["params"], row["param_bytes"], row["bops"]) == (30, 8, 30 * 8 * 2)


def test_a_weight_that_is_also_read_as_floats_has_each_width_and_the_greatest_in_the_total():
    graph = Graph()
    shared = graph.constant(weights(10, 10))
    narrow = graph.quantized(shared, STEP, ZERO, (-2, 1))
    graph.add("MatMul", "x", shared, name="floats")
    graph.add("MatMul", "floats", narrow, name="y")
    graph.add("MatMul", "y", narrow, name="z")
    model = loading.from_proto(graph.model("z", (1, 10)))
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    bytes_of = counted.table["param_bytes"]
    assert bytes_of[["floats", "y", "z"]].to_list() == [400, 25, 25]
    assert counted.parameters == (100, 400)


def test_bytes_that_move_are_those_of_the_types_in_the_graph():
    graph = Graph()
    w = graph.quantized(graph.constant(weights(10, 100)), STEP, ZERO, (-2, 1))
    graph.add("Gemm", "x", w, name="y", transB=1)
    nodes = table(graph, "y", 100)
    read = nodes.set_index("op_type")["bytes_read"]
    assert read["Gemm"] == 4 * (100 + 1000)  # x and the dequantised weights
    assert read["QuantizeLinear"] == 4 * 1000 + 4 + 1  # weights, scale, zero point
    assert read["DequantizeLinear"] == 1000 + 4 + 1


def test_a_weight_that_two_nodes_share_counts_once_in_the_totals_of_a_file():
    table = np.ones((100, 32), np.float32)
    text = """<ir_version: 8, opset_import: ["": 17]> g (int64[8] ids) => (float[8,100] y) {
        e = Gather (w, ids)
        y = Gemm <transB = 1> (e, w)
    }"""
    trace = tracer.count(parse(text, w=table))
    (run,) = json.loads(render(trace, "json"))["runs"]
    assert (run["totals"]["params"], run["totals"]["param_bytes"]) == (table.size, table.nbytes)
    assert trace.nodes["params"].to_list() == [table.size] * 2


def test_scales_of_channels_of_a_dynamic_quantisation_are_no_parameters(tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4,16] x) => (float[4,10] y) {
        y = MatMul (x, w)
    }"""
    weights = np.random.default_rng(0).standard_normal((16, 10)).astype(np.float32)
    onnx.save(parse(text, w=weights), tmp_path / "m.onnx")
    quantize_dynamic(tmp_path / "m.onnx", tmp_path / "q.onnx", per_channel=True)
    model = tracer.count(tmp_path / "q.onnx").model
    assert (model.params, model.param_bytes) == (160, 160)


def test_constants_of_torchs_quantised_modules_are_parameters(tmp_path):
    """Its exporter has weights of quantised modules as constants, and scales as initializers."""
    weights = {"w": np.ones((8, 3, 3, 3), np.int8), "b": np.linspace(-1, 1, 8, dtype=np.float32)}
    nodes = [
        *(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
          for name, value in weights.items()),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]),
        helper.make_node("Conv", ["x", "d", "b"], ["y"], "conv"),
    ]  # fmt: skip
    stored = {"s": np.array(0.1, np.float32), "z": np.array(0, np.int8)}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 6, 6])],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )  # fmt: skip
    model = helper.make_model(graph, producer_name="pytorch", ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    table = tracer.count(tmp_path / "net.onnx", in_process=True).nodes.set_index("node")
    assert table.loc["conv", "params"] == 8 * 3 * 3 * 3 + 8
