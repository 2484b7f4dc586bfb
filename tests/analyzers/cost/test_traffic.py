"""Bytes that each operator must touch, and the intensity that follows."""

import pytest
from onnx import TensorProto

from tests.analyzers.cost.graphs import Graph
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import shape_inference

F = 4  # bytes of a float


def row(graph, opset=17):
    model = graph.model(opset)
    return cost(TypedModel(model, shape_inference.infer(model, {}))).table.iloc[-1]


def moved(graph):
    last = row(graph)
    return last["bytes_read"], last["bytes_written"]


def test_an_input_used_twice_is_read_once():
    graph = Graph(x=(8, 8))
    graph.op("Mul", "x", "x")
    assert moved(graph) == (64 * F, 64 * F)


def test_a_view_moves_nothing_and_has_no_intensity():
    graph = Graph(x=(8, 8))
    graph.op("Reshape", "x", graph.ints(64))
    assert moved(graph) == (0, 0)
    assert row(graph).isna().to_dict()["intensity"]


def test_a_slice_reads_what_it_writes_and_its_bounds():
    graph = Graph(x=(8, 8))
    graph.op("Slice", "x", graph.ints(0), graph.ints(2), graph.ints(1))
    assert moved(graph) == (8 * 2 * F + 3 * 8, 8 * 2 * F)


def test_an_expansion_reads_the_small_tensor():
    graph = Graph(x=(8, 1))
    graph.op("Expand", "x", graph.ints(8, 16))
    assert moved(graph) == (8 * F + 2 * 8, 8 * 16 * F)


def test_dropout_is_a_view_unless_it_trains():
    graph = Graph(x=(8, 8))
    graph.op("Dropout", "x")
    assert moved(graph) == (0, 0)
    assert row(graph)["flops"] == 0
    training = Graph(x=(8, 8))
    flag = training.weight(dtype=TensorProto.BOOL)
    training.weights[-1].int32_data.append(1)
    training.op("Dropout", "x", "", flag)
    assert moved(training) == (64 * F + 1, 64 * F)
    assert row(training)["flops"] == 4 * 64


def test_intensity_is_flops_per_byte():
    graph = Graph(x=(16, 32))
    graph.linear("x", 32, 64)
    last = row(graph)
    touched = (16 * 32 + 64 * 32 + 64 + 16 * 64) * F
    assert last["intensity"] == pytest.approx((2 * 16 * 32 * 64 + 16 * 64) / touched)


def test_work_and_bytes_grow_with_the_batch_and_parameters_do_not():
    graph = Graph(x=("N", 3, 32, 32))
    graph.conv("x", 3, 32, 3, pad=1)
    model = graph.model()
    one, many = (
        cost(TypedModel(model, shape_inference.infer(model, {"x": (n, 3, 32, 32)}))).table.iloc[0]
        for n in (1, 16)
    )
    assert one["macs"] == 884_736
    for column in ("macs", "adds", "muls", "flops", "bytes_written"):
        assert many[column] == 16 * one[column]
    assert many["params"] == one["params"] == 864


def test_a_depthwise_convolution_has_one_window_per_output():
    graph = Graph(x=(1, 32, 10, 10))
    graph.conv("x", 32, 32, 3, pad=1, group=32)
    assert row(graph)["macs"] == 3 * 3 * 32 * 10 * 10


def test_a_fully_connected_classifier_has_the_macs_qonnx_counts():
    graph = Graph(x=(1, 784))
    x = "x"
    for features, outputs in ((784, 64), (64, 64), (64, 64), (64, 10)):
        x = graph.op("MatMul", x, graph.weight(features, outputs))
    model = graph.model()
    assert cost(TypedModel(model, shape_inference.infer(model, {}))).table["macs"].sum() == 59_008
