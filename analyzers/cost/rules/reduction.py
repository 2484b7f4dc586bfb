"""Reductions over axes, from their neutral element: n operations for n elements."""

import math

from tracer.analyzers.cost.count import NOTHING, Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, per_input

_OVER = {
    # per input element, per output element
    "ReduceSum": (Count(adds=1), NOTHING),
    "ReduceMean": (Count(adds=1), Count(other=1)),
    "ReduceProd": (Count(muls=1), NOTHING),
    "ReduceMax": (Count(other=1), NOTHING),
    "ReduceMin": (Count(other=1), NOTHING),
    "ReduceL1": (Count(adds=1, other=1), NOTHING),
    "ReduceL2": (Count(adds=1, muls=1), Count(other=1)),
    "ReduceSumSquare": (Count(adds=1, muls=1), NOTHING),
    "ReduceLogSum": (Count(adds=1), Count(other=1)),
    "ReduceLogSumExp": (Count(adds=2, other=2), Count(adds=1, other=1)),  # the maximum taken out
}


@counts(*_OVER, settings=(1,))
def _reduce(op: Operation) -> Count:
    if op.integer("noop_with_empty_axes", 0) and not _names_axes(op):
        return NOTHING
    per_input, per_output = _OVER[op.op_type]
    return per_input * op.input(0).size + per_output * op.output().size


def _names_axes(op: Operation) -> bool:
    return bool(op.integers("axes")) or (op.has(1) and op.input(1).size > 0)


counts("ArgMax", "ArgMin", "NonZero")(per_input(Count(other=1)))
counts("ReduceSumInteger", domain="com.microsoft")(per_input(Count(adds=1)))
counts("CumSum", settings=(1,))(per_input(Count(adds=1)))
counts("CumProd", settings=(1,))(per_input(Count(muls=1)))
counts("Col2Im", settings=(1, 2))(per_input(Count(adds=1)))  # each element is added to its pixel


@counts("TopK", settings=(1,))
def _top_k(op: Operation) -> Count:
    """Compares each element along one path of a heap of the k best."""
    count = op.output().shape[op.integer("axis", -1)]
    return Count(other=math.ceil(math.log2(count + 1))) * op.input(0).size
