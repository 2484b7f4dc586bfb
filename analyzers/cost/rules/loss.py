"""Losses of a classification."""

from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts
from tracer.analyzers.cost.rules.softmax import log_softmax


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
