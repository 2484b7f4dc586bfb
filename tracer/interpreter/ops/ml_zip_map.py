"""ZipMap of the domain ai.onnx.ml: rows of scores as maps from labels."""

from collections.abc import Sequence
from typing import Any

from tracer.errors import ModelError
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("ZipMap", domain="ai.onnx.ml")
def zip_map(
    X: Array,
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
) -> list[dict[Any, float]]:
    """Returns a map for each row of X (N, C), or of one row (C), from C labels to its values.

    Raises ModelError for another number of labels.
    """
    labels = classlabels_strings if classlabels_int64s is None else classlabels_int64s
    if labels is None or X.ndim not in (1, 2) or X.shape[-1] != len(labels):
        count = "no" if labels is None else len(labels)
        raise ModelError(f"{count} labels for values of shape {list(X.shape)}")
    rows = X.reshape(-1, len(labels)).tolist()
    return [dict(zip(labels, row, strict=True)) for row in rows]
