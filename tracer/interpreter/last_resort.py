"""What computes the nodes that the interpreter has no operator for, and the error without it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from tracer.errors import ModelError
from tracer.graph.model import Model, Node
from tracer.interpreter.binding import Kernel


class Fallback(Protocol):
    """Computes nodes that nothing else does; the seam for another runtime."""

    name: str
    """What it is, for messages."""

    def refuses(self, node: Node, opsets: Mapping[str, int]) -> str:
        """Returns why it cannot compute a node; '' if it can, as far as can be told before."""

    def kernel(self, node: Node, model: Model, constants: Collection[str]) -> Kernel:
        """Returns the kernel of a node, whose inputs in `constants` are the same in all runs."""


def refusal(model: Model, nodes: Sequence[Node], fallback: Fallback | None) -> ModelError:
    """Returns the error that names all operators of `nodes`, which nothing computes."""
    by_operator: dict[str, list[Node]] = {}
    for node in nodes:
        by_operator.setdefault(node.qualified_type, []).append(node)
    listed = ", ".join(
        f"{name} ({_places(each)}{_why(each[0], model, fallback)})"
        for name, each in by_operator.items()
    )
    many = len(by_operator) > 1
    what = "these operators have" if many else "this operator has"
    hint = "Write functions for them: --operators FILE.py computes them."
    if fallback is None:
        hint = f"tracer interpret --fallback ort computes those that onnxruntime has. {hint}"
    return ModelError(f"{model.name}: {what} no implementation here: {listed}", hint)


def note(nodes: Sequence[Node], fallback: Fallback) -> str:
    """Returns the sentence that says which nodes the fallback computes."""
    by_operator: dict[str, list[str]] = {}
    for node in nodes:
        by_operator.setdefault(node.qualified_type, []).append(f"'{node.key}'")
    listed = "; ".join(f"{name}: {', '.join(keys)}" for name, keys in by_operator.items())
    count = f"{len(nodes)} node{'s' * (len(nodes) > 1)}"
    return f"{fallback.name} computes {count} that the interpreter has no operator for ({listed})"


def _places(nodes: Sequence[Node]) -> str:
    first = f"'{nodes[0].key}'"
    return f"node {first}" if len(nodes) == 1 else f"{len(nodes)} nodes, the first is {first}"


def _why(node: Node, model: Model, fallback: Fallback | None) -> str:
    return "" if fallback is None else f"; {fallback.refuses(node, model.opsets)}"
