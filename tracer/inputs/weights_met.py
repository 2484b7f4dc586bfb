"""The sizes of an input that the weights it meets demand: a Conv's channels, a Gemm's features."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tracer.graph.model import Address, Model, Node

_Shape: TypeAlias = tuple[int, ...]
_Demand: TypeAlias = Callable[[Node, _Shape], Mapping[int, int]]

_KEEPS_AXES = frozenset(
    {"Cast", "DequantizeLinear", "DynamicQuantizeLinear", "Identity", "QuantizeLinear"}
)
"""Operators whose output 0 has the axes of input 0."""


def _attribute(node: Node, name: str, default: int) -> int:
    return next((a.i for a in node.proto.attribute if a.name == name), default)


def _convolved(node: Node, weight: _Shape) -> Mapping[int, int]:
    return {1: weight[1] * _attribute(node, "group", 1)} if len(weight) > 2 else {}


def _transposed(node: Node, weight: _Shape) -> Mapping[int, int]:
    return {1: weight[0]} if len(weight) > 2 else {}


def _multiplied(node: Node, weight: _Shape) -> Mapping[int, int]:
    if len(weight) < 2:
        return {}
    is_transposed = node.op_type == "Gemm" and _attribute(node, "transB", 0)
    return {0 if _attribute(node, "transA", 0) else -1: weight[-1 if is_transposed else -2]}


def _recurrent(node: Node, weight: _Shape) -> Mapping[int, int]:
    return {2: weight[2]} if len(weight) == 3 else {}


def _state(node: Node, weight: _Shape) -> Mapping[int, int]:
    return {0: weight[0], 2: weight[2]} if len(weight) == 3 else {}


_DEMANDS: Mapping[str, Mapping[int, tuple[int, _Demand]]] = {
    # operator: {position of an input: (position of the weight that it meets, what that demands)}
    "Conv": {0: (1, _convolved)},
    "ConvInteger": {0: (1, _convolved)},
    "QLinearConv": {0: (3, _convolved)},
    "ConvTranspose": {0: (1, _transposed)},
    "Gemm": {0: (1, _multiplied)},
    "MatMul": {0: (1, _multiplied)},
    "MatMulInteger": {0: (1, _multiplied)},
    "QLinearMatMul": {0: (3, _multiplied)},
    "LSTM": {0: (1, _recurrent), 5: (2, _state), 6: (2, _state)},
    "GRU": {0: (1, _recurrent), 5: (2, _state)},
    "RNN": {0: (1, _recurrent), 5: (2, _state)},
}


def sizes_met(model: Model, name: str, rank: int) -> dict[int, int]:
    """Returns the sizes that the weights it meets demand of input `name`, by axis."""
    return {
        axis % rank: size
        for node, position in _readers(model, ("", name))
        for axis, size in _demanded(model, node, position).items()
        if -rank <= axis < rank and size > 0
    }


def rank_met(model: Model, name: str) -> int:
    """Returns the rank that the weights it meets demand of input `name`; 0 if none does."""
    for node, position in _readers(model, ("", name)):
        if position == 0 and node.op_type in _DEMANDS:
            weight = weight_shape(model, node, _DEMANDS[node.op_type][0][0])
            if weight is not None and "MatMul" not in node.op_type:  # takes any rank
                return len(weight)
    return 0


def weight_shape(model: Model, node: Node, position: int) -> _Shape | None:
    """Returns the shape of the stored weight that is input `position` of `node`; None for others.

    A weight may be a Constant, or stored in integers and converted first.
    """
    if position >= len(node.inputs) or not node.inputs[position]:
        return None
    path, name = model.dataflow.address(node.inputs[position], node.scope)
    maker = model.dataflow.makers.get((path, name))
    while maker is not None and maker.op_type in _KEEPS_AXES and maker.inputs[0]:
        node = maker
        path, name = model.dataflow.address(node.inputs[0], node.scope)
        maker = model.dataflow.makers.get((path, name))
    if maker is not None and maker.op_type == "Constant":
        tensors = (a.t for a in maker.proto.attribute if a.name == "value")
        return next((tuple(tensor.dims) for tensor in tensors), None)
    if maker is not None:
        return None
    scope = next(each for each in node.scope.outward() if each.path == path)
    return next((tuple(w.dims) for w in scope.graph.initializer if w.name == name), None)


def _demanded(model: Model, node: Node, position: int) -> Mapping[int, int]:
    if node.domain or position not in _DEMANDS.get(node.op_type, {}):
        return {}
    place, demand = _DEMANDS[node.op_type][position]
    weight = weight_shape(model, node, place)
    return {} if weight is None else demand(node, weight)


def _readers(model: Model, tensor: Address) -> list[tuple[Node, int]]:
    """Returns the nodes that read `tensor`, or what has its axes, and the input that it is."""
    found, alike = [], [tensor]
    for each in alike:  # grows
        for node in model.dataflow.readers.get(each, ()):
            names = (model.dataflow.address(n, node.scope) if n else None for n in node.inputs)
            found += [(node, position) for position, at in enumerate(names) if at == each]
            if node.op_type in _KEEPS_AXES and found[-1][1] == 0:
                alike.append((node.scope.path, node.outputs[0]))
    return found
