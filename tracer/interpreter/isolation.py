"""Runs every node on the inputs that another runtime computed: its error is then its own."""

from collections.abc import Mapping, Sequence

import numpy as np

from tracer.graph.model import Model, Node
from tracer.graph.precision import precisions
from tracer.graph.randomness import draws
from tracer.interpreter.recording import named_tensors
from tracer.interpreter.values import Value
from tracer.support.tolerance import Difference, Tolerance, compare, worst


class Isolation:
    """An observer that replaces what a node computes by what the reference has for it.

    So each node of the main graph reads values of the reference, and its difference is what it adds
    itself, without the rounding of the nodes before it. `expected` are tensors by name; a tensor
    that it lacks goes on as computed. `differences` are by node key; random operators have none.
    """

    def __init__(self, model: Model, expected: Mapping[str, Value], tolerance: Tolerance) -> None:
        self._expected = expected
        self._tolerance = tolerance
        self._precisions = precisions(model, expected, given=expected)
        self.differences: dict[str, Difference] = {}

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Does nothing: there are no outputs yet."""

    def after(
        self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Sequence[Value]:
        """Compares the outputs with the reference, and returns those of the reference."""
        replaced, differences = list(outputs), []
        for place, (name, value) in enumerate(named_tensors(node, outputs)):
            theirs = self._expected.get(name)
            if theirs is None:
                continue
            exact = self._precisions.get(name)
            differences.append(compare(value, theirs, self._tolerance, exact))
            if _alike(value, theirs):
                replaced[place] = theirs
        if differences and not draws(node.op_type):
            self.differences[node.key] = worst(differences)
        return replaced


def _alike(ours: Value, theirs: Value) -> bool:
    """Whether the next nodes take one for the other: a sequence may hold what numpy lacks."""
    return (
        isinstance(ours, np.ndarray)
        and isinstance(theirs, np.ndarray)
        and (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    )
