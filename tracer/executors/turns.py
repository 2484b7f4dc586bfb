"""Records a session of turns of recorded runs, and undisturbed runs before the first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracer.containment import activity
from tracer.records.trace import Turns
from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Recorded runs in order: own times (runs × kernels) and durations (runs), in µs."""

    kernels: Sequence[str]
    samples_us: FloatArray
    profiled_us: FloatArray


@dataclass
class Recorder:
    """A session of one subject, open beside the sessions of others.

    `plain` makes an undisturbed run and returns its time, µs; `empty` a run without nodes. `record`
    makes a number of recorded runs, and `read` returns all of them. Runs that the profiler lost are
    missing at the end.
    """

    plain: Callable[[], float]
    record: Callable[[int], object]
    read: Callable[[], RunTimes]
    empty: Callable[[], float] | None = None
    _turns: int = 0
    _runs: int = 0
    _wall: list[float] = field(default_factory=list, repr=False)
    _empty: list[float] = field(default_factory=list, repr=False)

    def timed(self) -> float:
        """Makes an undisturbed run and returns its time, µs."""
        return self.plain()

    def take_turn(self, runs: int, rest: Callable[[], object]) -> None:
        """Records `runs`, the same number in every turn; before the first come undisturbed runs.

        A `rest` comes before both.
        """
        if not self._turns:
            rest()
            self._add_undisturbed(runs)
        rest()
        self.record(runs)
        activity.step()
        self._turns, self._runs = self._turns + 1, runs

    def _add_undisturbed(self, runs: int) -> None:
        """Makes undisturbed runs, and after each an empty one, in caches as a run leaves them."""
        self.plain()  # fills caches and wakes threads; not counted
        for _ in range(runs):
            self._wall.append(self.plain())
            activity.step()
            if self.empty is not None:
                self._empty.append(self.empty())

    def finish(self) -> Turns:
        """Returns the turns whose recorded runs are complete."""
        times, runs = self.read(), self._runs
        turns = min(self._turns, len(times.profiled_us) // runs)
        count = turns * runs
        kernels = tuple(times.kernels)
        return Turns(
            kernels,
            times.samples_us[:count].reshape(turns, runs, len(kernels)),
            times.profiled_us[:count].reshape(turns, runs),
            np.array(self._wall),
            None if self.empty is None else np.array(self._empty),
        )
