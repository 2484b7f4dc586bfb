"""The hooks around each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tracer.graph.model import Node
from tracer.interpreter.values import Value


class Observer(Protocol):
    """Sees every node of a run, those in bodies too, and may replace what it computed.

    The nodes of an operator that is expanded by its function body are seen as well, with keys
    below the operator's own (`Mish_3/Softplus_0`).
    """

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Called with the input values; one left out is None. They must not be written into."""

    def after(
        self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Sequence[Value] | None:
        """Called with the outputs; returns as many values to take their place, or None."""
