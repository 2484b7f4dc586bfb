"""Types of arrays for annotations, and the type of a value as text."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


def dtype_text(array: Array) -> str:
    """Returns the element type as `TensorType.dtype` spells it."""
    return _name(array.dtype)


@cache
def _name(dtype: np.dtype[Any]) -> str:
    return "string" if dtype.kind == "O" else dtype.name  # numpy builds a name every time


def type_text(value: Any) -> str:
    """Returns the type of a value for messages: `float32[1,3]`, `sequence of 2`, `nothing`."""
    if isinstance(value, np.ndarray):
        return f"{dtype_text(value)}[{','.join(map(str, value.shape))}]"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    return "nothing" if value is None else type(value).__name__


def map_values(value: Mapping[Any, Any], keys: Iterable[Any]) -> Array:
    """Returns the values of a map by `keys`; Python's floats are float32, as in ONNX's maps."""
    array = np.array([value[key] for key in keys])
    return array.astype(np.float32) if array.dtype == np.float64 else array
