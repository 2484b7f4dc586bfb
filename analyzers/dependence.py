"""What the result of a node depends on."""

from collections.abc import Sequence

from tracer.graph.model import Node, bodies

UNCHANGING = frozenset({"Identity", "Dropout"})
"""Operators whose result is their input: beside others in a kernel they are not run at all."""

_OF_SHAPES = frozenset({"Shape", "Size"})
"""Operators whose result does not depend on the values of their input."""


def needs(node: Node) -> tuple[str, ...]:
    """The inputs of a node whose values matter, without optional ones that are left out."""
    inputs = node.inputs[:1] if node.op_type == "CastLike" else node.inputs  # else only its type
    return tuple(name for name in inputs if name)


def constants(nodes: Sequence[Node], path: str) -> set[str]:
    """Tensors of the main graph that the runtime may compute when it loads the model.

    What follows from shapes is among them: it can where these are fixed.
    """
    if path:
        return set()  # a body may read the tensors around it
    graph = nodes[0].scope.graph if nodes else None
    known = {weight.name for weight in graph.initializer} if graph else set()
    for node in nodes:
        has_body = next(bodies(node.proto), None) is not None
        follows = known.issuperset(needs(node)) and not has_body and not _random(node)
        if follows or node.op_type in _OF_SHAPES:
            known.update(node.outputs)
    return known


def _random(node: Node) -> bool:
    return node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial")
