"""Values kept on the way through a network, so that a run can go on from there; within a bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from threading import Lock

from tracer.interpreter import values
from tracer.interpreter.values import Value

Alive = Mapping[str, Value]


class Checkpoints:
    """The values alive before some steps of some batches, as many as `limit` bytes hold.

    The first ones that are offered stay. Several threads may offer.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._kept: dict[int, dict[int, Alive]] = defaultdict(dict)
        self._counted: dict[int, Value] = {}
        self._lock = Lock()

    def offer(self, batch: int, step: int, alive: Alive) -> None:
        """Keep what is alive before `step` of `batch`, if there is room."""
        with self._lock:
            self._offer(batch, step, alive)

    def _offer(self, batch: int, step: int, alive: Alive) -> None:
        new = {id(v): v for v in alive.values() if id(v) not in self._counted}
        size = sum(values.nbytes(value) for value in new.values())
        if size <= self._left and step not in self._kept[batch]:
            self._left -= size
            self._counted |= new  # a value may be alive before several steps, or in every batch
            self._kept[batch][step] = alive

    def latest(self, batch: int, step: int) -> tuple[int, Alive] | None:
        """The last step up to `step` whose values are kept, and these."""
        kept = self._kept.get(batch, {})
        found = max((known for known in kept if known <= step), default=None)
        return None if found is None else (found, kept[found])
