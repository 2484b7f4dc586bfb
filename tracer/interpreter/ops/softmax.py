"""Softmax, LogSoftmax, Hardmax, and the losses of log-probabilities."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import compiled, parallel, tensors
from tracer.interpreter.numeric.tensors import flat, widened
from tracer.interpreter.operators import operator, parameters_of
from tracer.support.types import Array


@operator("Softmax", since=13, copies=2)
def softmax(input: Array, *, axis: int = -1) -> Array:
    """exp(x) divided by its sum along `axis`."""
    return _along(_softmax, input, axis)


@operator("LogSoftmax", since=13, copies=2)
def log_softmax(input: Array, *, axis: int = -1) -> Array:
    """The logarithm of the softmax, computed without rounding the softmax."""
    return _along(_log_softmax, widened(input), axis).astype(input.dtype, copy=False)


@operator("Hardmax", since=13, copies=2)
def hardmax(input: Array, *, axis: int = -1) -> Array:
    """1 at the first maximum along `axis`, else 0."""
    return _along(_hardmax, input, axis)


def flattened(function: Callable[..., Array]) -> Callable[..., Array]:
    """Returns the operator before opset 13: the axes from `axis` on form one row."""

    def coerced(input: Array, *, axis: int = 1) -> Array:
        at = axis + input.ndim if axis < 0 else axis
        rows = flat(flat(input, at, input.ndim), 0, at)
        return function(rows, axis=-1).reshape(input.shape)

    return coerced


for _name, _function in {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}.items():
    operator(_name, copies=2)(flattened(_function))


@operator("NegativeLogLikelihoodLoss", since=12, copies=1)
def negative_log_likelihood_loss(
    input: Array, target: Array, weight: Array | None = None,
    *, ignore_index: int | None = None, reduction: str = "mean",
) -> Array:  # fmt: skip
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
@parameters_of(negative_log_likelihood_loss)
def softmax_cross_entropy_loss(
    scores: Array, labels: Array, weights: Array | None = None, **attributes: Any
) -> tuple[Array, Array]:
    """The loss of the log-softmax of scores (N, C, *size), and the log-softmax."""
    logs = log_softmax(scores, axis=1)
    return negative_log_likelihood_loss(logs, labels, weights, **attributes), logs


def _along(compute: Callable[[Array, Array], None], x: Array, axis: int) -> Array:
    """Applies `compute` along `axis`; bfloat16 is computed in float32."""
    dtype = x.dtype
    if not x.size:
        return x
    wide = x.astype(np.float32) if dtype == ml_dtypes.bfloat16 else x
    rows = np.ascontiguousarray(wide.swapaxes(axis, -1)) if wide.ndim else wide.reshape(1)
    if compute is _softmax and compiled.takes_rows(rows):
        return compiled.softmax(rows).swapaxes(axis, -1).astype(dtype, copy=False)
    table = rows.reshape(-1, rows.shape[-1])
    out = tensors.empty(table.shape, table.dtype)
    parts = parallel.pieces(len(table), max(parallel.BLOCK // table.shape[1], 1))

    def block(index: int) -> None:
        compute(table[parts[index]], out[parts[index]])

    parallel.run_blocks(len(parts), block)
    result = out.reshape(rows.shape).swapaxes(axis, -1) if wide.ndim else out.reshape(())
    return result.astype(dtype, copy=False)


def _softmax(x: Array, out: Array) -> None:
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=-1, keepdims=True)


def _log_softmax(x: Array, out: Array) -> None:
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    out -= np.log(np.exp(out).sum(axis=-1, keepdims=True))


def _hardmax(x: Array, out: Array) -> None:
    out[...] = 0
    np.put_along_axis(out, x.argmax(axis=-1)[:, None], 1, axis=-1)
