"""Values kept on the way through a network, so that a run can go on from there; within a bound."""

from __future__ import annotations

from collections.abc import Mapping

from tracer.interpreter import values
from tracer.interpreter.values import Value

Alive = Mapping[str, Value]


class Checkpoints:
    """The values alive before some steps of some batches, as many as `limit` bytes hold.

    The first ones that are offered stay: what is kept does not depend on the time anything takes.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._kept: dict[tuple[int, int], Alive] = {}

    def offer(self, batch: int, step: int, alive: Alive) -> None:
        """Keep what is alive before `step` of `batch`, if there is room."""
        size = sum(values.nbytes(value) for value in alive.values())
        if size <= self._left and (batch, step) not in self._kept:
            self._left -= size
            self._kept[batch, step] = alive

    def latest(self, batch: int, step: int) -> tuple[int, Alive] | None:
        """The last step up to `step` whose values are kept, and these."""
        found = max((s for b, s in self._kept if b == batch and s <= step), default=None)
        return None if found is None else (found, self._kept[batch, found])
