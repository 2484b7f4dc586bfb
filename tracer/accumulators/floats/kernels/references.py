"""Sums in float64 beside narrow ones: the products one by one, in the order of k."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.arrays import have_places
from tracer.accumulators.floats.kernels.rounding import fused, inlined
from tracer.accumulators.floats.kernels.singles import COUNTS, SINGLES
from tracer.accumulators.kernels.array_types import flat, kernel, several
from tracer.interpreter.compiled_code import entry

_ROW = types.Array(types.float32, 1, "C", readonly=True)
_LANES, _COUNTS = flat(types.float64), flat(types.int32)
_TABLE = types.Array(types.float64, 2, "C")
_FOUR = several(types.float64, 4)


@inlined(types.void(_LANES, _LANES, several(_ROW, 4), _FOUR, _FOUR))
def _add_4(first: Any, second: Any, rows: Any, ones: Any, others: Any) -> None:
    """Adds 4 products to the sums of two rows, which stay in registers."""
    a, b, c, d = rows
    for i in range(first.size):
        wide, one, other = float(a[i]), first[i], second[i]
        one, other = fused(ones[0], wide, one), fused(others[0], wide, other)
        wide = float(b[i])
        one, other = fused(ones[1], wide, one), fused(others[1], wide, other)
        wide = float(c[i])
        one, other = fused(ones[2], wide, one), fused(others[2], wide, other)
        wide = float(d[i])
        first[i], second[i] = fused(ones[3], wide, one), fused(others[3], wide, other)


@inlined(types.void(_LANES, _ROW, types.float64))
def _add_1(sums: Any, row: Any, factor: float) -> None:
    for i in range(sums.size):
        sums[i] = fused(factor, float(row[i]), sums[i])


@inlined(types.void(SINGLES, SINGLES, types.int64, _TABLE))
def _add(left: Any, right: Any, low: int, exact: Any) -> None:
    """Adds all products to the exact sums."""
    (rows, depth), high = left.shape, low + right.shape[1]
    for row in range(0, rows - 1, 2):
        one, other = left[row], left[row + 1]
        first, second = exact[row, low:high], exact[row + 1, low:high]
        k = 0
        while k + 4 <= depth:
            _add_4(
                first, second, (right[k], right[k + 1], right[k + 2], right[k + 3]),
                (float(one[k]), float(one[k + 1]), float(one[k + 2]), float(one[k + 3])),
                (float(other[k]), float(other[k + 1]), float(other[k + 2]), float(other[k + 3])),
            )  # fmt: skip
            k += 4
        while k < depth:
            _add_1(first, right[k], float(one[k]))
            _add_1(second, right[k], float(other[k]))
            k += 1
    if rows % 2:
        for k in range(depth):
            _add_1(exact[rows - 1, low:high], right[k], float(left[rows - 1, k]))


@inlined(types.void(_COUNTS, _ROW, types.int32))
def _count(counts: Any, row: Any, one: int) -> None:
    """Adds `one` where a number is not 0."""
    for i in range(counts.size):
        counts[i] = np.int32(counts[i] + (one if row[i] != 0 else np.int32(0)))


@entry(have_places)
@kernel(types.void(SINGLES, SINGLES, types.int64, _TABLE, COUNTS, COUNTS))
def count(left: Any, right: Any, low: int, exact: Any, terms: Any, lost: Any) -> None:
    """Computes what is counted beside the sums of rows `left` (M, K) and columns `right` (K, n).

    `low` is the first column of P. Adds to `exact` (M, P), float64, the products; and writes to
    `terms` (M, P), int32, how many are not 0. `lost` (M, P), int32, has products that are lost, all
    those of 0 too, which it leaves out.
    """
    _add(left, right, low, exact)
    (rows, depth), width = left.shape, right.shape[1]
    others = np.zeros(width, np.int32)
    for k in range(depth):
        _count(others, right[k], np.int32(1))
    for row in range(rows):
        counts, of_row = terms[row, low : low + width], lost[row, low : low + width]
        counts[:] = others
        for k in range(depth):
            if left[row, k] == 0:
                _count(counts, right[k], np.int32(-1))
        for i in range(width):
            of_row[i] = np.int32(of_row[i] + counts[i] - depth)
