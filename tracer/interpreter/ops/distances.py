"""CDist and DynamicTimeWarping, domain com.microsoft: distances of points, and a cheapest path."""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.operators import MICROSOFT, Arguments, operator
from tracer.support.types import Array

_METRICS = ("sqeuclidean", "euclidean")
_BOTH, _ROW, _COLUMN = 0, 1, 2
"""A move of a path: to the next row and column, or to one of them."""


def check_points(given: Arguments) -> None:
    """Raises ModelError for points of different dimensions, and another metric."""
    A, B = given.A, given.B
    if given.metric not in _METRICS:
        raise ModelError(f"the metric '{given.metric}' is not one of {', '.join(_METRICS)}")
    if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[1]:
        raise ModelError(f"A {list(A.shape)} and B {list(B.shape)} are not rows of one length")


@operator("CDist", domain=MICROSOFT, check=check_points)
def cdist(A: Array, B: Array, *, metric: str = "sqeuclidean") -> Array:
    """Returns the distances [M, N] of the rows of A (M, D) and B (N, D), or their squares."""
    limits.allow((len(A), len(B)), np.float64)
    left, right = A.astype(np.float64), B.astype(np.float64)
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    squares = np.maximum(squares, 0)  # rounding may leave less than 0
    return (np.sqrt(squares) if metric == "euclidean" else squares).astype(A.dtype)


def check_costs(given: Arguments) -> None:
    """Raises ModelError for costs that are no matrix."""
    input = given.input
    if input.ndim not in (2, 3) or (input.ndim == 3 and input.shape[0] != 1):
        raise ModelError(f"costs of shape {list(input.shape)} are not [M, N] or [1, M, N]")
    if not input.size:
        raise ModelError(f"costs of shape {list(input.shape)} have no path")


@operator("DynamicTimeWarping", domain=MICROSOFT, check=check_costs)
def dynamic_time_warping(input: Array) -> Array:
    """Returns the cheapest path through costs (M, N), from corner to corner: int32 [2, steps]."""
    rows, columns = input.shape[-2:]
    costs = input.reshape(rows, columns)
    limits.allow((rows + 1, columns + 1), np.float32)
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    moves = np.zeros((rows, columns), np.int8)  # by which it enters each point; ties go by column
    for diagonal in range(rows + columns - 1):  # points of an anti-diagonal do not need each other
        i = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        j = diagonal - i
        both, up, left = total[i, j], total[i, j + 1], total[i + 1, j]
        taken = np.where((both < up) & (both < left), _BOTH,
                         np.where((up < both) & (up < left), _ROW, _COLUMN))  # fmt: skip
        moves[i, j] = taken
        total[i + 1, j + 1] = costs[i, j] + np.choose(taken, [both, up, left])
    row, column = rows - 1, columns - 1
    path = [(row, column)]
    while row or column:
        move = _COLUMN if not row else _ROW if not column else moves[row, column]
        row, column = row - (move != _COLUMN), column - (move != _ROW)
        path.append((row, column))
    return np.array(path[::-1], np.int32).T
