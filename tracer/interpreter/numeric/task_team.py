"""Runs compiled tasks on threads that spin for a while before they sleep.

Waking a thread takes as long as many nodes take, and threads between blocks would wait for the
interpreter lock. Compiled code in `kernels.task_team` therefore distributes the blocks; this
module only wakes helpers that sleep.
"""

from collections.abc import Sequence
from functools import cache
from itertools import islice
from threading import Lock, Thread

import numpy as np

from tracer.interpreter.kernel_entries import Task
from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array


def share(task: Task, count: int, arrays: Sequence[Array], numbers: Sequence[int] = ()) -> None:
    """Computes blocks 0 to `count` - 1 of a task, in any order and on several threads.

    Blocks must be independent. Raises UnfitError for arrays that compiled code would misread.
    """
    arguments = task.words(count, arrays, numbers)
    address = arguments.__array_interface__["data"][0]
    helpers = parallel.allowed() - 1
    team = _team(helpers) if helpers > 0 and count > 1 else None
    if team is None or not team.run(task.address, address, count):
        loaded("task_team").alone(task.address, address, count)


class _Team:
    """Helper threads for one leader at a time; a second leader is refused."""

    def __init__(self, helpers: int) -> None:
        self._kernels = loaded("task_team")
        self._words = np.zeros(self._kernels.words(helpers), np.int64)
        self._led = Lock()
        self._bells = {self._kernels.parked(number): Lock() for number in range(helpers)}
        for parked, bell in self._bells.items():
            bell.acquire()
            Thread(target=self._serve, args=(parked, bell), name="tracer", daemon=True).start()

    def run(self, task: int, arguments: int, count: int) -> bool:
        """Runs a task to its end; returns False if another task is running."""
        if not self._led.acquire(blocking=False):
            return False
        try:
            self._kernels.begin(self._words, task, arguments, count)
            for parked, bell in islice(self._bells.items(), count - 1):
                if self._kernels.asleep(self._words, parked):
                    bell.release()
            self._kernels.drain(self._words)
        finally:  # even if interrupted: helpers still read the arguments
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
