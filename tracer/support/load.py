"""How busy the machine was: what the system counted between two moments."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

try:
    import resource
except ModuleNotFoundError:  # Windows counts no switches of a process
    resource = None  # type: ignore[assignment]

_STAT = Path("/proc/stat")
_TICKS = 8
"""Fields of a processor's line: user, nice, system, idle, iowait, irq, softirq, steal. Those behind
them are counted in the first two as well."""
_IDLE = slice(3, 5)
_STEAL = 7


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
        switches = None if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
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
