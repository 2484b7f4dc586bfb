"""Times runs, and asks the system what kept each of them from its processor.

An involuntary context switch is the system's word that another program took the processor.
Processor time that is shorter than the run says for how long. Both are known on Unix alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tracer.support.timing import elapsed_us

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

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
