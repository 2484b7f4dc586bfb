"""Keeps the prepared passes of a node for its next runs."""

from __future__ import annotations

from tracer.accumulators.engine.node_pass import NodePass
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.constants import MemoryBudget
from tracer.support.types import Array

_MOST = 2
"""Passes that a node keeps."""


class KeptPasses:
    """The latest passes of one node, as far as the room of its model suffices.

    A pass has the weights as integers and as floats. Nodes of one model share a `room`.
    """

    def __init__(self, room: MemoryBudget | None = None) -> None:
        self._room = room or MemoryBudget()
        self._passes: list[NodePass] = []

    def find(
        self, left: Array, range_: tuple[int, int], bias: Array | None, terms: Terms,
        accumulator: Accumulator,
    ) -> NodePass | None:  # fmt: skip
        """Returns the pass of these arguments; None if it is not kept."""
        case = left, range_, bias, terms, accumulator
        return next((each for each in self._passes if each.suits(*case)), None)

    def keep(self, latest: NodePass) -> None:
        """Keeps a pass, in place of the oldest, if there is room."""
        while len(self._passes) >= _MOST:
            self._room.nbytes += self._passes.pop().nbytes
        if latest.nbytes <= self._room.nbytes:
            self._room.nbytes -= latest.nbytes
            self._passes.insert(0, latest)
