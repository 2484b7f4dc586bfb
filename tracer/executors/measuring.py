"""How many runs an executor makes: settings that executors share, and the runs still missing."""

from dataclasses import dataclass

from tracer.support.arguments import check_arguments

_LEAST_RUNS = 10
_DEFAULT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MeasuringSettings:
    """Number of runs; `threads` 0 is the runtime's default.

    `runs` is the least number of runs [default: 10]. Runs are repeated until they take `min_time`
    seconds [default: 1 without `runs`, else 0].
    """

    runs: int | None = None
    warmup: int = 5
    min_time: float | None = None
    threads: int = 0

    def __post_init__(self) -> None:
        """Raises UsageError for values out of range."""
        names = ("runs", "warmup", "min_time", "threads")
        check_arguments({name: getattr(self, name) for name in names})

    def missing_runs(self, runs: int, seconds: float) -> int:
        """Returns how many runs to add, by number and by time, to `runs` that took `seconds`."""
        least = self.runs if self.runs is not None else _LEAST_RUNS
        min_seconds = self.min_time
        if min_seconds is None:
            min_seconds = 0.0 if self.runs is not None else _DEFAULT_SECONDS
        by_time = 0
        if runs and seconds < min_seconds:
            by_time = int(runs / max(seconds, 1e-9) * (min_seconds - seconds)) + 1
        return max(0, least - runs, by_time)
