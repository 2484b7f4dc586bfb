"""Compiled tasks shared out to threads that wait awake for the next one, for a while.

A thread that sleeps takes as long to wake as many a node takes to compute, and threads that meet
between blocks would wait for the interpreter lock: so a team hands out blocks by itself, in
`kernels.team`, and only a helper that has fallen asleep is woken from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from threading import Lock, Thread
from typing import Protocol

import numpy as np

from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_TYPES = (np.dtype(np.float32), np.dtype(np.int64))


class Task(Protocol):
    """A compiled function of its arguments' words and the number of a block."""

    @property
    def address(self) -> int:
        """Where the function lies."""


def share(task: Task, count: int, arrays: Sequence[Array], numbers: Sequence[int] = ()) -> None:
    """Compute blocks 0 to `count` - 1 of a task, in any order and on several threads.

    Its arguments are the address and size of each array, float32 or int64, then the numbers.
    Blocks must not depend on each other. Raises TypeError for an array that compiled code would
    misread: of another type, or not contiguous.
    """
    words = [word for array in arrays for word in (_address(array), array.size)]
    arguments = np.array([*words, *numbers], np.int64)
    helpers = parallel.allowed() - 1
    team = _team(helpers) if helpers > 0 and count > 1 else None
    if team is None or not team.run(task.address, _address(arguments), count):
        loaded("task_team").alone(task.address, _address(arguments), count)


class _Team:
    """Threads that help whoever leads a task; a second leader at a time is turned away."""

    def __init__(self, helpers: int) -> None:
        self._kernels = loaded("task_team")
        self._words = np.zeros(self._kernels.words(helpers), np.int64)
        self._led = Lock()
        self._bells = {self._kernels.parked(number): Lock() for number in range(helpers)}
        for parked, bell in self._bells.items():
            bell.acquire()
            Thread(target=self._serve, args=(parked, bell), name="tracer", daemon=True).start()

    def run(self, task: int, arguments: int, count: int) -> bool:
        """Lead a task to its end; False if another one is under way."""
        if not self._led.acquire(blocking=False):
            return False
        try:
            self._kernels.begin(self._words, task, arguments, count)
            for parked, bell in islice(self._bells.items(), count - 1):
                if self._kernels.asleep(self._words, parked):
                    bell.release()
            self._kernels.drain(self._words)
        finally:  # even if interrupted: the arguments must outlive those who read them
            self._kernels.close(self._words)
            self._led.release()
        return True

    def _serve(self, parked: int, bell: Lock) -> None:
        while True:
            self._kernels.serve(self._words, parked)
            bell.acquire()


@cache
def _team(helpers: int) -> _Team:
    return _Team(helpers)


def _address(array: Array) -> int:
    if array.dtype not in _TYPES or not array.flags.c_contiguous:
        raise TypeError(f"a contiguous array of float32 or int64 is wanted, not {array.dtype}")
    return array.__array_interface__["data"][0]
