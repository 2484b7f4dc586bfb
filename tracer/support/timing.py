"""Times calls, in µs, and asks the system what kept them from their processors.

An involuntary context switch is the system's word that another program took the processor.
Processor time that is shorter than a run says for how long. Both are known on Unix alone.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

HAS_USAGE = resource is not None
"""Whether the system counts the context switches of a process."""
_STAT = Path("/proc/stat")
_TICKS = 8
"""Fields of a processor's line: user, nice, system, idle, iowait, irq, softirq, steal. Those behind
them are counted in the first two as well."""
_IDLE = slice(3, 5)
_STEAL = 7
SPINNING_S = 0.05
"""Time after which the threads of a pool sleep: they spin for 30 ms and more after a run, on the
cores that the next session needs."""


def elapsed_us(call: Callable[[], object], clock: Callable[[], int] | None = None) -> float:
    """Returns the wall time of one call, in µs, by a clock that counts ns."""
    clock = clock or time.perf_counter_ns
    start = clock()
    call()
    return (clock() - start) / 1e3


def times_us(call: Callable[[], object], count: int, warmup: int = 0) -> list[float]:
    """Returns the wall time of each of `count` calls, in µs, after `warmup` untimed calls."""
    for _ in range(warmup):
        call()
    return [elapsed_us(call) for _ in range(count)]


@dataclass
class RunTimer:
    """Times of runs, µs, and what the system counted in each: switches and processor time, µs."""

    us: list[float] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def time(self, run: Callable[[], object]) -> None:
        """Makes and times a run."""
        self.take(lambda: elapsed_us(run))

    def take(self, timed_run: Callable[[], float]) -> None:
        """Makes a run that returns its time, µs."""
        switches, cpu_us = usage()
        us = timed_run()
        after, cpu_after_us = usage()
        self.us.append(us)
        self.switches.append(after - switches)
        self.cpu_us.append(cpu_after_us - cpu_us)

    def add(self, other: "RunTimer", rows: Sequence[int]) -> None:
        """Adds the runs of `other` at these positions."""
        self.us += [other.us[row] for row in rows]
        self.switches += [other.switches[row] for row in rows]
        self.cpu_us += [other.cpu_us[row] for row in rows]


def usage() -> tuple[int, float]:
    """Returns this process's involuntary context switches and processor time (µs) so far."""
    if resource is None:
        return 0, 0.0
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nivcsw, (used.ru_utime + used.ru_stime) * 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """What took processors from this process meanwhile; None where the system does not tell.

    `others` is the share of all processors' time that other programs used, `stolen` the share that
    the host of a virtual machine kept for others. `interruptions` counts how often another program
    took the processor of a running thread.
    """

    others: float | None
    stolen: float | None
    interruptions: int | None


@dataclass(frozen=True, slots=True)
class Moment:
    """The counters of the system at one time, in seconds of all processors."""

    own: float
    total: float | None
    busy: float
    stolen: float
    interruptions: int | None

    @classmethod
    def now(cls) -> "Moment":
        """Reads the counters."""
        switches = None if resource is None else usage()[0]
        own = time.process_time()
        try:
            fields = _STAT.read_text(encoding="ascii").split(None, _TICKS + 1)[1 : _TICKS + 1]
            seconds = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
        except (OSError, ValueError):  # not Linux
            return cls(own, None, 0.0, 0.0, switches)
        total, stolen = sum(seconds), seconds[_STEAL]
        return cls(own, total, total - sum(seconds[_IDLE]) - stolen, stolen, switches)

    def until_now(self) -> Load:
        """Returns the load since this moment."""
        now = Moment.now()
        switches = None
        if self.interruptions is not None and now.interruptions is not None:
            switches = now.interruptions - self.interruptions
        total = 0.0 if self.total is None or now.total is None else now.total - self.total
        if total <= 0:
            return Load(None, None, switches)
        others = now.busy - self.busy - (now.own - self.own)
        return Load(max(0.0, others / total), (now.stolen - self.stolen) / total, switches)
