"""A registry of hostile models: each case is named by what is wrong with it."""

from collections.abc import Callable

import onnx
from onnx import helper

Make = Callable[[], "onnx.ModelProto | bytes"]

CASES: dict[str, Make] = {}
"""Filled by the modules beside this one."""


ENDLESS: set[str] = set()
"""Cases that no estimate ends: the limit of time does."""


def case(name: str, *, endless: bool = False) -> Callable[[Make], Make]:
    """Registers the decorated function as the hostile model `name`; an endless one never ends."""

    def register(make: Make) -> Make:
        assert name not in CASES, name
        CASES[name] = make
        if endless:
            ENDLESS.add(name)
        return make

    return register


def value(name, shape=(2, 3), dtype=onnx.TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, *, opset=18, weights=(), functions=(), domains=(), **rest):
    """A model of the nodes; values are given by `value`."""
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=9, functions=list(functions), **rest
    )


def relu(shape, dtype=onnx.TensorProto.FLOAT):
    """One Relu on an input of that shape."""
    node = helper.make_node("Relu", ["x"], ["y"], "node")
    return model([node], [value("x", shape, dtype)], [value("y", shape, dtype)])
