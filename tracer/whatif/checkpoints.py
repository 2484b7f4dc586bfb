"""Intermediate tensors of earlier runs, from which later runs continue; bounded in bytes."""

from collections import defaultdict
from collections.abc import Mapping
from threading import Lock

from tracer.interpreter import values
from tracer.interpreter.values import Value

Alive = Mapping[str, Value]
"""Tensors by name that a step or a later one reads."""


class Checkpoints:
    """The tensors alive before some steps of some batches, at most `limit` bytes.

    The first ones offered are stored. Several threads may offer.
    """

    def __init__(self, limit: int) -> None:
        self._free_bytes = limit
        self._stored: dict[int, dict[int, Alive]] = defaultdict(dict)
        self._counted: dict[int, Value] = {}
        self._lock = Lock()

    def offer(self, batch: int, step: int, alive: Alive) -> None:
        """Stores the tensors alive before `step` of `batch`, if they fit."""
        with self._lock:
            new = {id(v): v for v in alive.values() if id(v) not in self._counted}
            size = sum(values.nbytes(value) for value in new.values())
            if size <= self._free_bytes and step not in self._stored[batch]:
                self._free_bytes -= size
                self._counted |= new  # several steps and batches may share a tensor
                self._stored[batch][step] = alive

    def latest(self, batch: int, step: int) -> tuple[int, Alive] | None:
        """Returns the last stored step up to `step`, and the tensors alive before it."""
        stored = self._stored.get(batch, {})
        latest = max((each for each in stored if each <= step), default=None)
        return None if latest is None else (latest, stored[latest])
