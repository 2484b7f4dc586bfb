"""Types of arrays for annotations, and the type of a value as text."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]


def dtype_text(array: Array) -> str:
    """Returns the element type as `TensorType.dtype` spells it."""
    return "string" if array.dtype == object else array.dtype.name


def type_text(value: Any) -> str:
    """Returns the type of a value for messages: `float32[1,3]`, `sequence of 2`, `nothing`."""
    if isinstance(value, np.ndarray):
        return f"{dtype_text(value)}[{','.join(map(str, value.shape))}]"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    return "nothing" if value is None else type(value).__name__
