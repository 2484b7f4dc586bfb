"""Axes: counted from the end if negative, and as one; float types that are computed in float32."""

import math
from functools import cache
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.support.types import Array


def nonnegative_axis(axis: int, rank: int) -> int:
    """Returns the axis counted from the start. Raises ModelError for an axis out of range."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} of a tensor with {rank} axes")
    return int(axis) % rank


def flat(x: Array, start: int, stop: int) -> Array:
    """Returns `x` with its axes from `start` to `stop` - 1 as one, which may be empty.

    numpy cannot tell the size of an axis of -1 where another one is 0.
    """
    shape = x.shape
    return x.reshape(*shape[:start], math.prod(shape[start:stop]), *shape[stop:])


def are_indices(values: Array, stop: int) -> bool:
    """Whether all values are from 0 to `stop` - 1."""
    return not values.size or bool(0 <= values.min() <= values.max() < stop)


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
