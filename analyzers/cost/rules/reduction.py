"""Reductions: n operations for n elements, from their neutral element; softmax and losses."""

import math

from tracer.analyzers.cost.count import NOTHING, Count, Operation, counts, per_input, per_output
from tracer.graph.operators import MICROSOFT

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
    names_axes = op.integers("axes") or (op.has(1) and op.input(1).size > 0)
    if op.integer("noop_with_empty_axes", 0) and not names_axes:
        return NOTHING
    per_input, per_output = _OVER[op.op_type]
    return per_input * op.input(0).size + per_output * op.output().size


counts("ArgMax", "ArgMin", "NonZero")(per_input(Count(other=1)))
counts("ReduceSumInteger", domain=MICROSOFT)(per_input(Count(adds=1)))
counts("CumSum", settings=(1,))(per_input(Count(adds=1)))
counts("CumProd", settings=(1,))(per_input(Count(muls=1)))
counts("Col2Im", settings=(1, 2))(per_input(Count(adds=1)))  # each element is added to its pixel


@counts("TopK", settings=(1,))
def _top_k(op: Operation) -> Count:
    """Compares each element along one path of a heap of the k best."""
    count = op.output().shape[op.integer("axis", -1)]
    return Count(other=math.ceil(math.log2(count + 1))) * op.input(0).size


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


@counts("SoftmaxCrossEntropyLoss", settings=(1, 2))
def _cross_entropy(op: Operation) -> Count:
    scores = op.input(0)
    return log_softmax(scores.size, scores.size // max(scores.shape[1], 1)) + _loss(op)


@counts("NegativeLogLikelihoodLoss", settings=(1, 2))
def _loss(op: Operation) -> Count:
    """Negates, weighs and sums; a mean divides by the number or summed weights of the samples."""
    samples = op.input(1).size
    weighted = op.has(2)
    reduction = op.text("reduction", "mean")
    count = Count(muls=int(weighted), other=1) * samples
    if reduction != "none":
        count += Count(adds=samples)
    if reduction == "mean":
        count += Count(adds=samples if weighted else 0, other=1)
    return count
