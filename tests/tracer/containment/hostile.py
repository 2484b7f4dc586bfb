"""Models on which native code crashes or never ends, each a few nodes of valid protobuf."""

import numpy as np
import onnx
from onnx import TensorProto as Type
from onnx import helper, numpy_helper

_OPSET = helper.make_opsetid("", 17)


def _model(nodes, inputs, outputs, weights=()):
    stored = [numpy_helper.from_array(array, name) for name, array in weights]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[_OPSET], ir_version=8)


def _value(name, shape, kind=Type.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def division():
    """INT_MIN ÷ -1, made while the model runs: SIGFPE in onnxruntime."""
    node = helper.make_node
    nodes = [
        node("Mul", ["x", "zero"], ["z"]),
        node("Add", ["z", "least"], ["a"]),
        node("Add", ["z", "minus"], ["b"]),
        node("Div", ["a", "b"], ["y"], name="division"),
    ]
    least = np.iinfo(np.int64).min
    weights = [(n, np.array([v])) for n, v in (("zero", 0), ("least", least), ("minus", -1))]
    kind = Type.INT64
    return _model(nodes, [_value("x", [1], kind)], [_value("y", [1], kind)], weights)


def pairs():
    """INT_MIN ÷ -1 for a batch of 2, and 7 ÷ -1 for any other."""
    node = helper.make_node
    nodes = [
        node("Size", ["x"], ["n"]),
        node("Equal", ["n", "two"], ["e"]),
        node("Where", ["e", "least", "seven"], ["a"]),
        node("Div", ["a", "minus"], ["d"]),
        node("Cast", ["d"], ["f"], to=Type.FLOAT),
        node("Add", ["x", "f"], ["y"]),
    ]
    numbers = {"two": 2, "least": np.iinfo(np.int64).min, "seven": 7, "minus": -1}
    weights = [(name, np.array(value)) for name, value in numbers.items()]
    return _model(nodes, [_value("x", ["N", 1])], [_value("y", ["N", 1])], weights)


def normalization():
    """A legal LayerNormalization without bias: SIGSEGV in onnxruntime's optimiser."""
    node = helper.make_node("LayerNormalization", ["x", "w", ""], ["y"])
    return _model([node], [_value("x", [2, 3]), _value("w", [3])], [_value("y", [2, 3])])


def endless():
    """A Loop without a trip count, whose condition stays true."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Neg", ["a"], ["b"])],
        "body",
        [_value("i", [], Type.INT64), _value("c", [], Type.BOOL), _value("a", [1])],
        [_value("d", [], Type.BOOL), _value("b", [1])],
    )
    node = helper.make_node("Loop", ["", "true", "x"], ["y"], body=body)
    return _model([node], [_value("x", [1])], [_value("y", [1])], [("true", np.array(True))])


def greedy():
    """Four GiB of zeros."""
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["z"]),
        helper.make_node("ReduceSum", ["z"], ["r"], keepdims=0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    return _model(nodes, [_value("x", [1])], [_value("y", [1])], [("s", np.array([1 << 30]))])


def harmless():
    """One Relu."""
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    return _model([node], [_value("x", [4])], [_value("y", [4])])


def fused():
    """Conv and Relu, which onnxruntime runs as one kernel."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    weights = [("w", np.ones((1, 1, 2, 2), np.float32))]
    return _model(nodes, [_value("x", [1, 1, 4, 4])], [_value("y", [1, 1, 3, 3])], weights)


def save_all(folder):
    """Writes every model to `folder`, named as its function."""
    for make in (division, pairs, normalization, endless, greedy, harmless, fused):
        onnx.save(make(), folder / f"{make.__name__}.onnx")
