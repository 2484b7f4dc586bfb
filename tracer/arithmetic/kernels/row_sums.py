"""Sums of rows of float32: in the lanes of Eigen's reductions, or one number after another."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.lanes import SINGLE_LANES, SINGLE_ROW
from tracer.accumulators.kernels.array_types import read_only
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels.machine_code import inlined

_TABLE = read_only(types.float32, 2)
_LANES = 4
"""Elements of a vector of SSE2; two vectors add in turn."""


def _fits(values: Any, is_set: bool, out: Any) -> bool:
    return bool(values.shape[1] > 0 and out.shape == values.shape[:1])


@inlined(types.float32(SINGLE_ROW, types.int64))
def _in_lanes(x: Any, start: int) -> Any:
    """The sum of a row in vectors from `start` on: what is outside is added last."""
    size = (x.size - start) // _LANES * _LANES
    lanes = np.zeros(2 * _LANES, np.float32)
    width = min(size, 2 * _LANES)
    for first in range(0, width, _LANES):
        for i in range(_LANES):
            lanes[first + i] = x[start + first + i]
    pairs = size // (2 * _LANES) * (2 * _LANES)
    for first in range(2 * _LANES, pairs, 2 * _LANES):
        for i in range(2 * _LANES):
            lanes[i] += x[start + first + i]
    if size > _LANES:
        for i in range(_LANES):
            lanes[i] += lanes[_LANES + i]
        if size > pairs:
            for i in range(_LANES):
                lanes[i] += x[start + pairs + i]
    total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    for i in range(start):
        total += x[i]
    for i in range(start + size, x.size):
        total += x[i]
    return total


@entry(_fits, types.void(_TABLE, types.boolean, SINGLE_LANES))
def in_lanes(values: Any, is_aligned: bool, out: Any) -> None:
    """Writes the sum of each row of `values` (N, W) as Eigen adds it.

    With `is_aligned` vectors begin where an address is a multiple of 16 bytes, as that of the first
    row is; else at the first number. Rows that have no whole vector are added in order.
    """
    width = values.shape[1]
    for row in range(values.shape[0]):
        start = (-row * width) % _LANES if is_aligned else 0
        x = values[row]
        if start + _LANES > width:
            total = x[0]
            for i in range(1, width):
                total += x[i]
            out[row] = total
        else:
            out[row] = _in_lanes(x, start)


@entry(_fits, types.void(_TABLE, types.boolean, SINGLE_LANES))
def in_order(values: Any, from_zero: bool, out: Any) -> None:
    """Writes the sum of each row of `values` (N, W): from 0, or from the first number."""
    for row in range(values.shape[0]):
        x = values[row]
        total = x[0] + np.float32(0) if from_zero else x[0]
        for i in range(1, x.size):
            total += x[i]
        out[row] = total
