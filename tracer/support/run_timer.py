"""Times runs, and asks the system what kept each of them from its processor.

An involuntary context switch is the system's word that another program took the processor.
Processor time that is shorter than the run says for how long. Both are known on Unix alone.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tracer.support.timing import elapsed_us

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_STAT = Path("/proc/stat")
_IDLE, _IOWAIT, _GUEST = 3, 4, 8
"""Fields of a line of /proc/stat; guests are counted among the others as well (proc(5))."""

HAS_USAGE = resource is not None
"""Whether the system counts the context switches of a process."""


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


@dataclass
class LoadMeter:
    """Measures which share of the processors other programs use from now on."""

    _began: float = field(default_factory=time.monotonic)
    _busy_s: float | None = field(default_factory=lambda: _busy_s())
    _own_us: float = field(default_factory=lambda: usage()[1])

    def others(self) -> float | None:
        """Returns the share, 0 to 1, of the processors of this process; None if unknown.

        What a virtual machine's host took from them counts as used by others.
        """
        busy_s, elapsed = _busy_s(), time.monotonic() - self._began
        if busy_s is None or self._busy_s is None or elapsed <= 0:
            return None
        own_s = (usage()[1] - self._own_us) / 1e6
        others_s = busy_s - self._busy_s - own_s
        return min(1.0, max(0.0, others_s / elapsed / len(os.sched_getaffinity(0))))


def _busy_s() -> float | None:
    """Returns the seconds in which the processors of this process were not idle, of all programs.

    None where the system does not tell. It counts in steps of 10 ms.
    """
    try:
        lines = _STAT.read_text(encoding="ascii").splitlines()
        names = {f"cpu{index}" for index in os.sched_getaffinity(0)}
        ticks = os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):  # no Linux
        return None
    busy = 0
    for name, *fields in (line.split() for line in lines):
        if name in names:
            times = list(map(int, fields[:_GUEST]))
            busy += sum(times) - times[_IDLE] - times[_IOWAIT]
    return busy / ticks
