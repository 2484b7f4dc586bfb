"""LabelEncoder, DictVectorizer and Normalizer of the domain ai.onnx.ml: elements, tables, rows."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_ML = "ai.onnx.ml"
_UNKNOWN = "_Unused"
_NAN = "NaN"
"""Stands for every NaN in a table of floats, which has no texts."""


@operator("LabelEncoder", since=2, domain=_ML)
def label_encoder(
    X: Array,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = _UNKNOWN,
    default_tensor: Array | None = None,
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    keys_tensor: Array | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
    values_tensor: Array | None = None,
) -> Array:
    """Replaces each key by its value, and others by the default of the values' type.

    Raises ModelError unless keys and values are given, as many of both.
    """
    keys = _given(keys_floats, keys_int64s, keys_strings, keys_tensor)
    if values_tensor is not None:
        default = np.zeros(1, values_tensor.dtype) if default_tensor is None else default_tensor
        kind, values, other = values_tensor.dtype, values_tensor.tolist(), default.reshape(-1)[0]
    elif values_strings is not None:
        kind, values, other = np.dtype(object), list(values_strings), default_string
    elif values_floats is not None:
        kind, values, other = np.dtype(np.float32), list(values_floats), default_float
    else:
        kind, values, other = np.dtype(np.int64), _given(values_int64s), default_int64
    if len(keys) != len(values):
        raise ModelError(f"{len(keys)} keys, but {len(values)} values")
    if X.dtype == np.float32:  # keys in double precision equal no float
        keys = np.array(keys, np.float32).tolist()
    return _mapped(X, dict(zip(map(_hashable, keys), values, strict=True)), other, kind)


@operator("LabelEncoder", domain=_ML)
def label_encoder_1(
    X: Array,
    *,
    classes_strings: Sequence[str] | None = None,
    default_int64: int = -1,
    default_string: str = _UNKNOWN,
) -> Array:
    """LabelEncoder of version 1: an index becomes its text, a text its index."""
    texts = _given(classes_strings)
    if X.dtype.kind in "iu":
        return _mapped(X, dict(enumerate(texts)), default_string, np.dtype(object))
    table = {text: index for index, text in enumerate(texts)}
    return _mapped(X, table, default_int64, np.dtype(np.int64))


@operator("DictVectorizer", domain=_ML)
def dict_vectorizer(
    X: Mapping[Any, Any],
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> Array:
    """Returns the values of the map X in the order of the vocabulary; what it lacks is 0 or ''.

    The values' type is kept; Python's floats are float32.
    """
    keys = _given(string_vocabulary, int64_vocabulary)
    first = next(iter(X.values()), 0.0)
    if isinstance(first, str):
        return np.array([X.get(key, "") for key in keys], object)
    kind = np.float32 if type(first) is float else np.asarray(first).dtype
    return np.array([X.get(key, 0) for key in keys], kind)


@operator("Normalizer", domain=_ML)
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


def _given(*lists: Any) -> list[Any]:
    for each in lists:
        if each is not None:
            return each.tolist() if isinstance(each, np.ndarray) else list(each)
    raise ModelError("keys or values are missing")


def _mapped(x: Array, table: dict[Hashable, Any], other: Any, kind: np.dtype[Any]) -> Array:
    limits.allow(x.shape, kind)
    mapped = np.empty(x.size, kind)
    for place, key in enumerate(x.reshape(-1).tolist()):
        mapped[place] = table.get(_hashable(key), other)
    return mapped.reshape(x.shape)


def _hashable(key: Any) -> Hashable:
    """A NaN is every other NaN."""
    return _NAN if key != key else key
