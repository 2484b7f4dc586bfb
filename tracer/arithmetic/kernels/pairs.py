"""Sums of 8-bit products whose pairs saturate at 16 bits, as VPMADDUBSW adds them."""

from typing import Any

from numba import types

from tracer.accumulators.kernels.array_types import kernel, read_only
from tracer.interpreter.compiled_code import entry

_LEAST, _MOST = -(1 << 15), (1 << 15) - 1
_WIDTH = 1 << 12
"""Columns at a time, which stay in the first cache."""


def _fits(a: Any, b: Any, out: Any) -> bool:
    groups, rows, columns = out.shape
    fits = a.shape == (groups, rows, b.shape[1]) and b.shape[::2] == (groups, columns)
    return bool(fits)


@kernel(
    types.void(types.Array(types.int32, 1, "C"), *[types.int32] * 2, *[read_only(types.int16)] * 2)
)
def _add_pairs(sums: Any, a0: int, a1: int, b0: Any, b1: Any) -> None:
    for i in range(sums.size):
        pair = a0 * b0[i] + a1 * b1[i]
        sums[i] += min(max(pair, _LEAST), _MOST)


@entry(_fits)
@kernel(types.void(*[read_only(types.int16, 3)] * 2, types.Array(types.int32, 3, "C")))
def add_pairs(a: Any, b: Any, out: Any) -> None:
    """Computes `out` (G, M, N): products of rows of `a` (G, M, K) and columns of `b` (G, K, N).

    Terms 2 k and 2 k + 1 are added and limited to 16 bits; an odd last one stands alone.
    """
    groups, terms, columns = b.shape
    for group in range(groups):
        for low in range(0, columns, _WIDTH):
            high = min(low + _WIDTH, columns)
            for row in range(out.shape[1]):
                sums = out[group, row, low:high]
                sums[:] = 0
                for k in range(0, terms, 2):
                    other = min(k + 1, terms - 1)
                    last = a[group, row, other] if other > k else 0
                    first, second = b[group, k, low:high], b[group, other, low:high]
                    _add_pairs(sums, a[group, row, k], last, first, second)
