"""Converts ONNX's axes, which count from the end if negative, and joins axes."""

import math

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
