"""SVMClassifier of the domain ai.onnx.ml: votes of pairs of classes, or linear scores.

Probabilities of more than two classes are coupled as in T.-F. Wu, C.-J. Lin, R. C. Weng,
"Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004, algorithm 2.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.ops.activation import sigmoid
from tracer.interpreter.ops.ml_scores import TRANSFORMS
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Floats = Sequence[float] | None
_EDGE = 1e-7
"""Pairwise probabilities keep this distance from 0 and 1, as in libsvm."""


@operator("SVMClassifier", domain="ai.onnx.ml")
def svm_classifier(
    X: Array,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float],
    kernel_params: _Floats = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: _Floats = None,
    prob_b: _Floats = None,
    rho: Sequence[float],
    support_vectors: _Floats = None,
    vectors_per_class: Sequence[int] | None = None,
) -> tuple[Array, Array]:
    """Returns the labels of the rows of X (N, F), and their scores as float32.

    Scores are probabilities (N, C) with `prob_a`, else one for each pair of classes (N, C(C-1)/2);
    of two classes both signs. Raises ModelError for an unknown kernel or transformation.
    """
    labels = classlabels_ints or classlabels_strings or [0]
    rows = X.astype(np.float32)
    positive = min(coefficients) >= 0
    if not vectors_per_class:
        weights = np.array(coefficients, np.float32).reshape(len(labels), -1)
        votes = scores = rows @ weights.T + np.float32(rho[0])
    else:
        total = sum(vectors_per_class)
        vectors = np.array(support_vectors or (), np.float32).reshape(total, -1)
        parameters = (*(kernel_params or ()), 0, 0, 0)[:3]
        kernels = _kernel(kernel_type, rows, vectors, parameters)
        factors = np.array(coefficients, np.float32).reshape(-1, total)
        scores = _pairs(kernels, factors, vectors_per_class, rho)
        votes = _votes(scores, len(labels))
    has_probabilities = bool(prob_a and vectors_per_class)
    if has_probabilities:
        scores = _probabilities(scores, prob_a or (), prob_b or (), len(labels))
    best = votes.argmax(1)
    if len(rho) == 1 and len(labels) == 2 and not has_probabilities and positive:
        best = np.where(votes.max(1) >= 0.5, 1, best)
    names = np.array(labels, object if classlabels_strings else np.int64)
    return names[best], _transformed(scores, post_transform)


def _transformed(scores: Array, name: str) -> Array:
    """Returns scores after the transformation; one score becomes a pair of both signs."""
    if name not in TRANSFORMS:
        raise ModelError(f"post_transform '{name}' is not one of {', '.join(TRANSFORMS)}")
    if scores.shape[1] == 1 and name != "PROBIT":
        scores = np.concatenate([-scores, scores], axis=1)
    return TRANSFORMS[name](scores).astype(np.float32)


def _kernel(name: str, x: Array, y: Array, parameters: Sequence[float]) -> Array:
    """Returns the kernel (N, V) of the rows of x (N, F) and y (V, F)."""
    if name not in _KERNELS:
        raise ModelError(f"kernel_type '{name}' is not one of {', '.join(_KERNELS)}")
    gamma, shift, degree = np.array(parameters, np.float32)[:, None, None]
    return _KERNELS[name](x, y, gamma, shift, degree)


def _radial(x: Array, y: Array, gamma: Array, shift: Array, degree: Array) -> Array:
    distances = np.stack([((x - each) ** 2).sum(1) for each in y], axis=1)
    return np.asarray(np.exp(-gamma * distances))


_KERNELS: Mapping[str, Callable[[Array, Array, Array, Array, Array], Array]] = {
    "LINEAR": lambda x, y, gamma, shift, degree: x @ y.T,
    "POLY": lambda x, y, gamma, shift, degree: (gamma * (x @ y.T) + shift) ** degree,
    "RBF": _radial,
    "SIGMOID": lambda x, y, gamma, shift, degree: np.tanh(gamma * (x @ y.T) + shift),
}


def _pairs(kernels: Array, factors: Array, counts: Sequence[int], rho: Sequence[float]) -> Array:
    """Returns the decision of each pair of classes, (N, pairs); positive is the first of both."""
    ends = np.cumsum(counts)
    parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    decisions = [
        kernels[:, parts[i]] @ factors[j - 1, parts[i]]
        + kernels[:, parts[j]] @ factors[i, parts[j]]
        for i, j in combinations(range(len(counts)), 2)
    ]
    return np.stack(decisions, axis=1) + np.array(rho[: len(decisions)], np.float32)


def _votes(decisions: Array, classes: int) -> Array:
    votes = np.zeros((len(decisions), classes), np.float32)
    for (i, j), decision in zip(combinations(range(classes), 2), decisions.T, strict=True):
        votes[:, i] += decision > 0
        votes[:, j] += ~(decision > 0)
    return votes


def _probabilities(decisions: Array, a: Sequence[float], b: Sequence[float], classes: int) -> Array:
    """Returns the probability of each class, (N, C), from sigmoids of the pairwise decisions."""
    pairwise = np.zeros((len(decisions), classes, classes), np.float32)
    fitted = -(decisions * np.array(a, np.float32) + np.array(b, np.float32))
    likely = np.clip(sigmoid(fitted), _EDGE, 1 - _EDGE)
    for (i, j), each in zip(combinations(range(classes), 2), likely.T, strict=True):
        pairwise[:, i, j], pairwise[:, j, i] = each, 1 - each
    return np.stack([_coupled(each) for each in pairwise]).reshape(-1, classes)


def _coupled(pairwise: Array) -> Array:
    """Returns probabilities (C) that fit those of pairs (C, C) best."""
    classes = len(pairwise)
    form = -pairwise.T * pairwise
    np.fill_diagonal(form, (pairwise**2).sum(0))
    found = np.full(classes, 1 / classes, np.float32)
    for _ in range(max(100, classes)):
        gradient = form @ found
        value = found @ gradient
        if np.abs(gradient - value).max() < 0.005 / classes:
            break
        for t in range(classes):
            step = (value - gradient[t]) / form[t, t]
            found[t] += step
            value = (value + step * (step * form[t, t] + 2 * gradient[t])) / (1 + step) ** 2
            gradient = (gradient + step * form[t]) / (1 + step)
            found /= 1 + step
    return found
