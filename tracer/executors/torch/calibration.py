"""What torch's profiler adds to a call of an operator, measured on this machine.

An operator is stamped when its record begins and when it ends, so that what recording costs lies
outside of its own interval, in that of the operator around it. On a chain of trivial operators
the time of a run grows by just that cost for each.
"""

from __future__ import annotations

from functools import cache

import torch

from tracer.executors.eager.profile import Cost
from tracer.executors.torch.spans import Session
from tracer.support.timing import times_us

_LENGTH = 200
_RUNS = 10
_TURNS = 5


@cache
def measure() -> Cost:
    """The cost of recording a call; takes some milliseconds and is done once a process.

    The shortest of many chains is one that nothing disturbed, recorded or not.
    """
    x = torch.ones(8)
    plain, recorded = _shortest(x), float("inf")
    for _ in range(_TURNS):
        with Session().recording():
            recorded = min(recorded, _shortest(x))
        plain = min(plain, _shortest(x))
    return Cost(inside=0.0, outside=max(0.0, recorded - plain) / _LENGTH)


def _shortest(x: torch.Tensor) -> float:
    """Time, µs, of the shortest of a few chains."""

    def chain() -> None:
        for _ in range(_LENGTH):
            torch.neg(x)

    with torch.no_grad():
        return min(times_us(chain, _RUNS))
