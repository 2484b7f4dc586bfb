"""How many runs an executor makes: settings that executors share, and the runs still missing."""

from dataclasses import dataclass

from tracer.errors import UsageError

MOST_THREADS = 1024
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
        for name, least in (("runs", 1), ("warmup", 0), ("min_time", 0), ("threads", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} is {value}", f"It is at least {least}.")
        if self.threads > MOST_THREADS:
            raise UsageError(f"{self.threads} threads are too many", f"At most {MOST_THREADS}.")

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
