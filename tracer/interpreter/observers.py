"""The protocol of observers, which are called before and after every node."""

from collections.abc import Sequence
from typing import Protocol

from tracer.graph.model import Node
from tracer.interpreter.values import Value


class Observer(Protocol):
    """Is called around every node of a run, including nodes in bodies, and may replace outputs.

    Nodes of an operator that is expanded by its function body are included; their keys follow the
    operator's own key (`Mish_3/Softplus_0`).
    """

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Called with the inputs, which must not be changed; an omitted input is None."""
        return  # not abstract: a subclass may leave it out

    def after(
        self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Sequence[Value] | None:
        """Called with the outputs; returns as many values to replace them, or None."""
