"""Intermediate tensors of earlier runs, from which later runs continue; bounded in bytes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from threading import Lock

from tracer.interpreter import values
from tracer.interpreter.values import Value

Alive = Mapping[str, Value]
"""Tensors by name that a step or a later one reads."""

Path = tuple[int, ...]
"""What a batch is computed in: the width of each narrow node, WIDE where no sum has left it yet."""
WIDE = 0
"""Stands for any width that holds all sums of a node, whose inputs are those of the wide run."""

_Place = tuple[int, int, Path]
"""A batch, a step, and the path as far as that step."""


class Checkpoints:
    """The tensors alive before some steps of some batches, at most `limit` bytes.

    They depend on the widths of the nodes before the step alone; `steps` has the step of each node.
    What is offered first is stored. Several threads may offer.
    """

    def __init__(self, limit: int, steps: Sequence[int]) -> None:
        self._steps = tuple(steps)
        self._limit = limit
        self._bytes = 0
        self._stored: dict[_Place, Alive] = {}
        self._uses: dict[int, int] = defaultdict(int)
        self._lock = Lock()

    def offer(self, batch: int, step: int, path: Path, alive: Alive) -> None:
        """Stores the tensors alive before `step` of `batch`, if they fit."""
        place = self._place(batch, step, path)
        with self._lock:
            new = {id(v): v for v in alive.values() if not self._uses.get(id(v))}
            size = sum(values.nbytes(value) for value in new.values())
            if self._bytes + size <= self._limit and place not in self._stored:
                self._stored[place] = alive
                self._bytes += size
                for value in alive.values():
                    self._uses[id(value)] += 1  # several steps and batches may share a tensor

    def latest(self, batch: int, step: int, path: Path) -> tuple[int, Alive] | None:
        """Returns the last stored step up to `step`, and the tensors alive before it."""
        ends = sorted({*self._steps, step}, reverse=True)
        for each in ends:
            alive = self._stored.get(self._place(batch, each, path)) if each <= step else None
            if alive is not None:
                return each, alive
        return None

    def make_room(self, paths: Mapping[int, Path]) -> None:
        """Where half of the bytes are in use, drops what the paths of these batches do not reach.

        Checkpoints of other batches stay.
        """
        if self._bytes * 2 < self._limit:
            return
        for place in [*self._stored]:
            batch, step, _ = place
            if batch in paths and place != self._place(batch, step, paths[batch]):
                self._drop(place)

    def _place(self, batch: int, step: int, path: Path) -> _Place:
        before = zip(path, self._steps, strict=True)
        return batch, step, tuple(width for width, own in before if own < step)

    def _drop(self, place: _Place) -> None:
        for value in self._stored.pop(place).values():
            self._uses[id(value)] -= 1
            if not self._uses[id(value)]:
                del self._uses[id(value)]
                self._bytes -= values.nbytes(value)
