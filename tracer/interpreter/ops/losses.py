"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric.half_types import widened
from tracer.interpreter.ops.softmax import log_softmax
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("NegativeLogLikelihoodLoss", since=12, copies=1)
def negative_log_likelihood_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """The loss of log-probabilities (N, C, *size), whose right classes are `target` (N, *size)."""
    if target.shape != input.shape[:1] + input.shape[2:]:
        raise ModelError(f"targets {list(target.shape)} of classes {list(input.shape)}")
    counted = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    classes = np.where(counted, target, 0).astype(np.int64)
    if counted.any() and not 0 <= classes.min() <= classes.max() < input.shape[1]:
        raise ModelError(
            f"a target beyond the {input.shape[1]} classes", "Set ignore_index to leave one out."
        )
    losses = -np.take_along_axis(widened(input), classes[:, None], 1)[:, 0] if counted.any() else (
        np.zeros(target.shape, widened(input).dtype))  # fmt: skip
    weights = counted.astype(losses.dtype)
    if weight is not None:
        weights *= widened(weight)[classes]
    losses = np.where(counted, losses * weights, 0)
    if reduction == "none":
        result = losses
    elif reduction == "sum":
        result = losses.sum()
    else:
        result = losses.sum() / (weights.sum() if losses.size else 1)
    return np.asarray(result, input.dtype)


@operator("SoftmaxCrossEntropyLoss", since=12, copies=2)
def softmax_cross_entropy_loss(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    """The loss of the log-softmax of scores (N, C, *size), and the log-softmax."""
    logs = log_softmax(scores, axis=1)
    loss = negative_log_likelihood_loss(
        logs, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return loss, logs
