"""Nodes that repeat others are counted once, and only those: expected figures are by hand."""

import itertools

import onnx
from onnx import TensorProto, helper

from tracer.analyzers.cost import cost
from tracer.analyzers.cost import count as counting
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading
from tracer.shapes import infer


def opened(nodes: list[onnx.NodeProto], output: str) -> TypedModel:
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.FLOAT, [2, 6]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", inputs, [value(output, TensorProto.FLOAT, None)])
    opset = helper.make_opsetid("", 17)
    model = loading.from_proto(helper.make_model(graph, opset_imports=[opset], ir_version=8))
    return TypedModel(model, infer(model, {}))


def test_a_rule_is_asked_once_for_nodes_that_are_alike(monkeypatch):
    names = ["x", *(f"r{at}" for at in range(200))]
    pairs = itertools.pairwise(names)
    nodes = [helper.make_node("Relu", [read], [written], written) for read, written in pairs]
    asked, rule_of = [], counting.rule_of
    monkeypatch.setattr(counting, "rule_of", lambda op: asked.append(op.node.key) or rule_of(op))
    table = cost(opened(nodes, names[-1])).table
    assert asked == ["r0"]
    assert table["flops"].tolist() == [12] * 200
    assert table["bytes_read"].tolist() == [48] * 200


def test_one_tensor_read_twice_is_no_pair_of_tensors():
    nodes = [
        helper.make_node("Add", ["x", "y"], ["a"], "pair"),
        helper.make_node("Add", ["a", "a"], ["b"], "twice"),
        helper.make_node("Concat", ["b", "x"], ["c"], "rows", axis=0),
        helper.make_node("Concat", ["c", "c"], ["d"], "columns", axis=1),
        helper.make_node("ReduceSum", ["d"], ["e"], "all"),
    ]
    read = cost(opened(nodes, "e")).table["bytes_read"]
    assert read[["pair", "twice", "rows", "columns"]].tolist() == [96, 48, 96, 96]
