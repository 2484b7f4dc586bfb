"""Types of the arguments of the kernels, and sizes of arrays that belong to one product."""

from typing import Any

from numba import types

from tracer.accumulators.floats.kernels.rounding import FORMAT
from tracer.accumulators.kernels.array_types import each, flat, several

ROW = types.Array(types.float64, 1, "C", readonly=True)
TABLE = types.Array(types.float64, 2, "C", readonly=True)
NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
LANES, COUNTS, BITS = flat(types.float64), flat(types.int64), flat(types.uint64)
BITS_OF_ALL = types.Array(types.uint64, 2, "C")
_FLOATS, _COUNTS = types.Array(types.float64, 2, "C"), types.Array(types.int64, 2, "C")

SUMS = each(LANES, LANES, COUNTS, COUNTS, COUNTS)
"""Sums of neighbouring columns: values, exact sums, terms, swamped terms, overflows."""
OUTS = each(_FLOATS, _FLOATS, _COUNTS, _COUNTS, _COUNTS)
"""The same of all rows and columns."""
FORMS = several(FORMAT, 2)
"""The formats of sums, and of products or of sums that are joined."""
TERM = each(types.float64, types.float64, types.int64, types.int64)
"""A sum on its way: value, exact sum, terms, swamped terms."""


def have_places(left: Any, right: Any, low: int, *outs: Any) -> bool:
    """Whether `outs` (M, P) have the rows `left` (M, K), and columns `right` (K, n) from `low`."""
    shape = outs[0].shape
    return bool(
        left.shape[1] == len(right) and len(left) == shape[0]
        and 0 <= low <= shape[1] - right.shape[1] and all(out.shape == shape for out in outs)
    )  # fmt: skip


def are_alike(*arrays: Any) -> bool:
    """Whether arrays have one shape."""
    return all(each.shape == arrays[0].shape for each in arrays)
