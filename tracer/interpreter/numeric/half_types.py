"""Tells the float types that are computed in float32; numpy spells out a type's name slowly."""

from functools import cache
from typing import Any

import numpy as np

from tracer.support.types import Array


@cache
def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is float16 or bfloat16."""
    return dtype.name in ("float16", "bfloat16")


@cache
def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is float16, bfloat16 or a float8."""
    return is_half(dtype) or dtype.name.startswith("float8")


def widened(x: Array) -> Array:
    """Returns `x`, in float32 if it is float16 or bfloat16."""
    return x.astype(np.float32) if is_half(x.dtype) else x
