"""Operators of the domain ai.onnx.ml: tables, rows, and the support vector classifier.

Probabilities of more than two classes are coupled as in T.-F. Wu, C.-J. Lin, R. C. Weng,
"Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004, algorithm 2.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.graph.operators import CLASSICAL
from tracer.interpreter.operators import Floats, Ints, operator
from tracer.interpreter.ops.arithmetic import sigmoid
from tracer.interpreter.ops.softmax import softmax
from tracer.support.types import Array

_UNKNOWN = "_Unused"
_NAN = "NaN"
"""Stands for every NaN in a table of floats, which has no texts."""


@operator("LabelEncoder", since=2, domain=CLASSICAL)
def label_encoder(
    X: Array,
    *, default_float: float = -0.0, default_int64: int = -1, default_string: str = _UNKNOWN,
    default_tensor: Array | None = None, keys_floats: Floats = None, keys_int64s: Ints = None,
    keys_strings: Sequence[str] | None = None, keys_tensor: Array | None = None,
    values_floats: Floats = None, values_int64s: Ints = None,
    values_strings: Sequence[str] | None = None, values_tensor: Array | None = None,
) -> Array:  # fmt: skip
    """Replaces each key by its value, and others by the default of the values' type.

    Raises ModelError unless keys and values are given, as many of both.
    """
    keys = _first_list(keys_floats, keys_int64s, keys_strings, keys_tensor)
    if values_tensor is not None:
        default = np.zeros(1, values_tensor.dtype) if default_tensor is None else default_tensor
        kind, values, other = values_tensor.dtype, values_tensor.tolist(), default.reshape(-1)[0]
    elif values_strings is not None:
        kind, values, other = np.dtype(object), list(values_strings), default_string
    elif values_floats is not None:
        kind, values, other = np.dtype(np.float32), list(values_floats), default_float
    else:
        kind, values, other = np.dtype(np.int64), _first_list(values_int64s), default_int64
    if len(keys) != len(values):
        raise ModelError(f"{len(keys)} keys, but {len(values)} values")
    if X.dtype == np.float32:  # keys in double precision equal no float
        keys = np.array(keys, np.float32).tolist()
    return _look_up(X, dict(zip(map(_hashable, keys), values, strict=True)), other, kind)


@operator("LabelEncoder", domain=CLASSICAL)
def label_encoder_1(
    X: Array,
    *, classes_strings: Sequence[str] | None = None, default_int64: int = -1,
    default_string: str = _UNKNOWN,
) -> Array:  # fmt: skip
    """LabelEncoder of version 1: an index becomes its text, a text its index."""
    texts = _first_list(classes_strings)
    if X.dtype.kind in "iu":
        return _look_up(X, dict(enumerate(texts)), default_string, np.dtype(object))
    table = {text: index for index, text in enumerate(texts)}
    return _look_up(X, table, default_int64, np.dtype(np.int64))


@operator("DictVectorizer", domain=CLASSICAL)
def dict_vectorizer(
    X: Mapping[Any, Any],
    *, int64_vocabulary: Ints = None, string_vocabulary: Sequence[str] | None = None,
) -> Array:  # fmt: skip
    """Returns the values of the map X in the order of the vocabulary; what it lacks is 0 or ''.

    The values' type is kept; Python's floats are float32.
    """
    keys = _first_list(string_vocabulary, int64_vocabulary)
    first = next(iter(X.values()), 0.0)
    if isinstance(first, str):
        return np.array([X.get(key, "") for key in keys], object)
    kind = np.float32 if type(first) is float else np.asarray(first).dtype
    return np.array([X.get(key, 0) for key in keys], kind)


@operator("ZipMap", domain=CLASSICAL)
def zip_map(
    X: Array,
    *, classlabels_int64s: Ints = None, classlabels_strings: Sequence[str] | None = None,
) -> list[dict[Any, float]]:  # fmt: skip
    """Returns a map for each row of X (N, C), or of one row (C), from C labels to its values.

    Raises ModelError for another number of labels.
    """
    labels = classlabels_strings if classlabels_int64s is None else classlabels_int64s
    if labels is None or X.ndim not in (1, 2) or X.shape[-1] != len(labels):
        count = "no" if labels is None else len(labels)
        raise ModelError(f"{count} labels for values of shape {list(X.shape)}")
    rows = X.reshape(-1, len(labels)).tolist()
    return [dict(zip(labels, row, strict=True)) for row in rows]


@operator("Normalizer", domain=CLASSICAL)
def normalizer(X: Array, *, norm: str = "MAX") -> Array:
    """Divides each row by its largest element, or by its norm, in float32; not by 0.

    Raises ModelError for another norm than MAX, L1 and L2.
    """
    if norm not in ("MAX", "L1", "L2"):
        raise ModelError(f"norm '{norm}' is not one of MAX, L1, L2")
    rows = X.astype(np.float32)
    if not rows.size:
        return rows
    divisor = {
        "MAX": lambda: rows.max(axis=-1, keepdims=True),
        "L1": lambda: np.abs(rows).sum(axis=-1, keepdims=True),
        "L2": lambda: np.sqrt(np.square(rows).sum(axis=-1, keepdims=True)),
    }[norm]()
    return rows / np.where(divisor == 0, np.float32(1), divisor)


def _first_list(*lists: Any) -> list[Any]:
    for each in lists:
        if each is not None:
            return each.tolist() if isinstance(each, np.ndarray) else list(each)
    raise ModelError("keys or values are missing")


def _look_up(x: Array, table: dict[Hashable, Any], other: Any, kind: np.dtype[Any]) -> Array:
    limits.allow(x.shape, kind)
    mapped = np.empty(x.size, kind)
    for place, key in enumerate(x.reshape(-1).tolist()):
        mapped[place] = table.get(_hashable(key), other)
    return mapped.reshape(x.shape)


def _hashable(key: Any) -> Hashable:
    """A NaN is every other NaN."""
    return _NAN if key != key else key


_EDGE = 1e-7
"""Pairwise probabilities keep this distance from 0 and 1, as in libsvm."""
_ZERO = 1e-7
"""SOFTMAX_ZERO leaves scores up to this size out."""


@operator("SVMClassifier", domain=CLASSICAL)
def svm_classifier(
    X: Array,
    *, classlabels_ints: Ints = None, classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float],
    kernel_params: Floats = None, kernel_type: str = "LINEAR", post_transform: str = "NONE",
    prob_a: Floats = None, prob_b: Floats = None, rho: Sequence[float],
    support_vectors: Floats = None, vectors_per_class: Ints = None,
) -> tuple[Array, Array]:  # fmt: skip
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
        if kernel_type not in _KERNELS:
            raise ModelError(f"kernel_type '{kernel_type}' is not one of {', '.join(_KERNELS)}")
        parameters = np.array((*(kernel_params or ()), 0, 0, 0)[:3], np.float32)
        kernels = _KERNELS[kernel_type](rows, vectors, *parameters[:, None, None])
        factors = np.array(coefficients, np.float32).reshape(-1, total)
        scores = _pairs(kernels, factors, vectors_per_class, rho)
        votes = np.zeros((len(rows), len(labels)), np.float32)
        for (i, j), score in zip(combinations(range(len(labels)), 2), scores.T, strict=True):
            votes[:, i] += score > 0
            votes[:, j] += ~(score > 0)
    has_probabilities = bool(prob_a and vectors_per_class)
    if has_probabilities:
        scores = _probabilities(scores, prob_a or (), prob_b or (), len(labels))
    best = votes.argmax(1)
    if len(rho) == 1 and len(labels) == 2 and not has_probabilities and positive:
        best = np.where(votes.max(1) >= 0.5, 1, best)
    names = np.array(labels, object if classlabels_strings else np.int64)
    if post_transform not in TRANSFORMS:
        raise ModelError(f"post_transform '{post_transform}' is not one of {', '.join(TRANSFORMS)}")
    if scores.shape[1] == 1 and post_transform != "PROBIT":  # a pair of both signs
        scores = np.concatenate([-scores, scores], axis=1)
    return names[best], TRANSFORMS[post_transform](scores).astype(np.float32)


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


_KERNELS: Mapping[str, Callable[[Array, Array, Array, Array, Array], Array]] = {
    "LINEAR": lambda x, y, gamma, shift, degree: x @ y.T,
    "POLY": lambda x, y, gamma, shift, degree: (gamma * (x @ y.T) + shift) ** degree,
    "RBF": lambda x, y, gamma, shift, degree: np.exp(
        -gamma * np.stack([((x - each) ** 2).sum(1) for each in y], axis=1)
    ),
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
