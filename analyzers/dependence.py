"""The inputs on which the result of a node depends."""

from collections.abc import Sequence, Set

from tracer.graph.model import Node, bodies
from tracer.graph.operators import draws_numbers

UNCHANGING = frozenset({"Identity", "Dropout"})
"""Operators that return their input: a runtime drops them from a kernel with other nodes."""

_OF_SHAPES = frozenset({"Shape", "Size"})
"""Operators whose result does not depend on the values of their input."""


def needs(node: Node) -> tuple[str, ...]:
    """Returns the inputs of a node whose values matter, without absent optional inputs."""
    inputs = node.inputs[:1] if node.op_type == "CastLike" else node.inputs  # else only the type
    return tuple(name for name in inputs if name)


def constants(nodes: Sequence[Node], around: Set[str] = frozenset()) -> set[str]:
    """Returns the tensors that a runtime may compute when it loads the model.

    `nodes` are all nodes of a graph; `around` are such tensors of the graphs around it. They
    include tensors that depend only on shapes, since shapes may be fixed.
    """
    graph = nodes[0].scope.graph if nodes else None
    constant = {*around, *((weight.name for weight in graph.initializer) if graph else ())}
    for node in nodes:
        follows = constant.issuperset(needs(node)) and not bodies(node.proto)
        if (follows and not draws_numbers(node.op_type)) or node.op_type in _OF_SHAPES:
            constant.update(node.outputs)
    return constant
