"""How many runs an executor makes: settings that executors share, and the runs still missing."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tracer.containment import activity
from tracer.support.arguments import check_arguments
from tracer.support.progress import Progress, silent

_LEAST_RUNS, _FEWEST_RUNS = 10, 3
"""Default runs at least, and of a slow model: two have no spread worth the name."""
_DEFAULT_SECONDS = 0.5
_PRECISE_SECONDS = 1.5
"""Seconds of runs by default, and the most for rows that are not precise yet."""
PRECISION = 0.05
"""Share of the times of the slowest rows to which they are known by default."""
_MOST_SECONDS = 10.0
"""Seconds of runs after which fewer than `_LEAST_RUNS` are enough, unless their number is set.
Undisturbed and warm-up runs take about as long again."""
_WARMUP_SECONDS = 3.0
"""Seconds after which warm-up ends, unless the number of runs is set."""


@dataclass(frozen=True, slots=True)
class MeasuringSettings:
    """Number of runs; `threads` 0 is the runtime's default.

    `runs` is the least number of runs [default: 10, or 10 s of them but 3]. Runs are repeated until
    they take `min_time` seconds [default: 0.5 without `runs`, else 0], and without both until each
    of the ten slowest kernels is known within `precision` [default: 5 %] of its time or told from
    its neighbours, for 1.5 s at most, or 10 s with a `precision` of one's own.
    """

    runs: int | None = None
    warmup: int = 5
    min_time: float | None = None
    threads: int = 0
    precision: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for values out of range."""
        names = ["runs", "warmup", "min_time", "threads"]
        names += [] if self.precision is None else ["precision"]
        check_arguments({name: getattr(self, name) for name in names})

    def missing_runs(
        self, runs: int, seconds: float, expected_s: float = 0.0, spread: float = 0.0
    ) -> int:
        """Returns how many runs to add, by number, time and precision, to `runs` of `seconds`.

        `expected_s` is the time of a run where none is recorded yet, if it is known. `spread` is
        that of the kernels so far (see `tracer.executors.precision`).
        """
        min_seconds = self.min_time
        if min_seconds is None:
            min_seconds = 0.0 if self.runs is not None else _DEFAULT_SECONDS
        by_time = 0
        if runs and seconds < min_seconds:
            by_time = int(runs / max(seconds, 1e-9) * (min_seconds - seconds)) + 1
        least = self._least(seconds / runs if runs else expected_s)
        return max(0, least - runs, by_time, self._for_precision(runs, seconds, spread))

    def _for_precision(self, runs: int, seconds: float, spread: float) -> int:
        """Returns the runs after which `spread`, which shrinks as their root grows, would be 1."""
        if spread <= 1 or not runs:
            return 0
        most_s = _PRECISE_SECONDS if self.precision is None else _MOST_SECONDS
        affordable = int((most_s - seconds) / max(seconds, 1e-9) * runs)
        return max(0, min(int(runs * (spread**2 - 1)) + 1, affordable))

    def notes(self, runs: int, seconds: float) -> tuple[str, ...]:
        """Returns a note where `runs` are fewer than usual, as they took `seconds`."""
        if self.runs is not None or not 0 < runs < _LEAST_RUNS:
            return ()
        return (
            f"{runs} runs instead of {_LEAST_RUNS}, as one takes {seconds / runs:.2g} s; --runs "
            "sets their number",
        )

    def _least(self, run_s: float) -> int:
        if self.runs is not None:
            return self.runs
        affordable = _LEAST_RUNS if run_s <= 0 else int(_MOST_SECONDS / run_s)
        return min(_LEAST_RUNS, max(_FEWEST_RUNS, affordable))


def warm_up(
    run: Callable[[], object], settings: MeasuringSettings, progress: Progress = silent
) -> None:
    """Makes the warm-up runs; without a number of runs, for three seconds at most."""
    began = time.monotonic()
    for done in range(settings.warmup):
        if settings.runs is None and time.monotonic() - began > _WARMUP_SECONDS:
            break
        progress(done, settings.warmup, "warming up")
        run()
        activity.step()
    progress(settings.warmup, settings.warmup, "warming up")
