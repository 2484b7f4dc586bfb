"""Measures the overhead of torch's profiler on a call of an operator, on this machine.

An operator is stamped at the begin and the end of its record. So the overhead lies outside its own
interval, in the interval of the enclosing operator. A chain of trivial operators takes longer by
the overhead of each.
"""

from functools import cache

import torch

from tracer.executors.eager.profile import Overhead
from tracer.executors.torch.spans import Session
from tracer.support.timing import times_us

_LENGTH = 200
_RUNS = 10
_TURNS = 5


@cache
def measure() -> Overhead:
    """Returns the overhead of recording a call; takes some milliseconds, once a process.

    The shortest of many chains, recorded or not, is free of disturbances.
    """
    x = torch.ones(8)
    plain, recorded = _shortest(x), float("inf")
    for _ in range(_TURNS):
        with Session().recording():
            recorded = min(recorded, _shortest(x))
        plain = min(plain, _shortest(x))
    return Overhead(inside=0.0, outside=max(0.0, recorded - plain) / _LENGTH)


def _shortest(x: torch.Tensor) -> float:
    """Returns the time, µs, of the shortest of a few chains."""

    def chain() -> None:
        for _ in range(_LENGTH):
            torch.neg(x)

    with torch.no_grad():
        return min(times_us(chain, _RUNS))
