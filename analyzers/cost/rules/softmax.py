"""Softmax and related operators, computed safely: the maximum is subtracted first."""

import math

from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, per_output

PER_ELEMENT = Count(adds=2, other=3)
"""Compare for the maximum, subtract it, exp, sum, divide."""

counts("Softmax")(per_output(PER_ELEMENT))
counts("Hardmax")(per_output(Count(other=1)))


@counts("LogSoftmax")
def _log_softmax(op: Operation) -> Count:
    return log_softmax(op.output().size, rows(op))


def log_softmax(elements: int, rows: int) -> Count:
    """Counts comparing, subtracting the maximum, exp, sum, and subtracting a logarithm per row."""
    return Count(adds=3, other=2) * elements + Count(other=rows)


def rows(op: Operation) -> int:
    """Returns the number of distributions; before opset 13 all axes from `axis` on form one."""
    shape = op.input(0).shape
    if op.opset < 13:
        return math.prod(shape[: op.integer("axis", 1) % (len(shape) + 1)])
    return op.input(0).size // max(shape[op.integer("axis", -1)], 1)
