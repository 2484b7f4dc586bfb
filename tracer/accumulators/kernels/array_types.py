"""Argument types in the signatures of the kernels."""

from typing import Any

from numba import types

NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
TABLE = types.Array(types.int64, 2, "C", readonly=True)
START = types.Array(types.int64, 2, "A", readonly=True)
FLAT_OUT = types.Array(types.int64, 1, "C")
TABLE_OUT = types.Array(types.int64, 2, "C")
MATRIX_OUT = types.Array(types.int64, 2, "A")


def vector_type(kind: Any) -> Any:
    """A contiguous vector that is written to."""
    return types.Array(kind, 1, "C")


def read_only(kind: Any, rank: int = 1) -> Any:
    """A contiguous array that is read."""
    return types.Array(kind, rank, "C", readonly=True)


def repeat_type(kind: Any, count: int) -> Any:
    """A tuple of `count` values of a type."""
    return tuple_type(*[kind] * count)


def tuple_type(*kinds: Any) -> Any:
    """A tuple with a value of each type."""
    make: Any = types.Tuple
    return make(kinds)
