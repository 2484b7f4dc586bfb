"""What torch's profiler adds to a call of an operator, measured on this machine.

An operator is stamped when its record begins and when it ends, so that what recording costs lies
outside of its own interval, in that of the operator around it. On a chain of trivial operators
the time of a run grows by just that cost for each.
"""

from __future__ import annotations

import statistics
import time
from functools import cache
from typing import TYPE_CHECKING

from tracer.executors.eager.profile import Cost
from tracer.executors.torch.spans import Session

if TYPE_CHECKING:
    import torch

_LENGTH = 200
_RUNS = 15


@cache
def measure() -> Cost:
    """The cost of recording a call; takes some milliseconds and is done once a process."""
    import torch

    x = torch.ones(8)
    _chains(x)
    with Session().recording():
        recorded = _chains(x)
    plain = _chains(x)
    return Cost(inside=0.0, outside=max(0.0, recorded - plain) / _LENGTH)


def _chains(x: torch.Tensor) -> float:
    """Median time, µs, of a chain."""
    import torch

    times = []
    with torch.no_grad():
        for _ in range(_RUNS):
            start = time.perf_counter_ns()
            for _ in range(_LENGTH):
                torch.neg(x)
            times.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(times)
