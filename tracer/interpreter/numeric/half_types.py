"""Tells the float types that are computed in float32; numpy spells out a type's name slowly."""

from functools import cache
from typing import Any

import numpy as np


@cache
def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is float16 or bfloat16."""
    return dtype.name in ("float16", "bfloat16")


@cache
def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is float16, bfloat16 or a float8."""
    return is_half(dtype) or dtype.name.startswith("float8")
