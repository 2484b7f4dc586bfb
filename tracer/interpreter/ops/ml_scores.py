"""What classifiers of the domain ai.onnx.ml may do with their scores, `post_transform`."""

from collections.abc import Callable, Mapping

import numpy as np

from tracer.interpreter.ops.activation import sigmoid
from tracer.interpreter.ops.softmax import softmax
from tracer.support.types import Array

_ZERO = 1e-7
"""SOFTMAX_ZERO leaves scores up to this size out."""


def _softmax_zero(scores: Array) -> Array:
    """Softmax, in which a score of zero is not raised: it is scaled as the others."""
    top = scores.max(axis=1, keepdims=True)
    powers = np.where(np.abs(scores) > _ZERO, np.exp(scores - top), scores * np.exp(-top))
    sums = powers.sum(axis=1, keepdims=True)
    return np.asarray(np.where(sums == 0, 0.5, powers / np.where(sums == 0, 1, sums)))


def _probit(scores: Array) -> Array:
    """sqrt(2) times the inverse error function of 2 x - 1, by Winitzki's approximation."""
    places = 2 * scores - 1
    logs = np.log((1 - places) * (1 + places))
    half = 2 / (np.pi * 0.147) + 0.5 * logs
    roots = np.sqrt(-half + np.sqrt(half * half - logs / 0.147))
    return np.asarray(1.41421356 * np.copysign(roots, places))


TRANSFORMS: Mapping[str, Callable[[Array], Array]] = {
    "NONE": lambda scores: scores,
    "LOGISTIC": sigmoid,
    "SOFTMAX": lambda scores: softmax(scores, axis=1),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}
"""Each takes scores (N, C) and returns as many."""
