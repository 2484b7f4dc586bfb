"""Sums whose terms are taken against the sign of the exact sum so far: the order `sorted`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from tracer.accumulators.kernels.program_sums import SATURATE, WRAP, ZERO

_MATRIX = types.Array(types.int64, 2, "C", readonly=True)
_START = types.Array(types.int64, 2, "A", readonly=True)
_RULES = types.Array(types.int64, 2, "C", readonly=True)
_OUT = types.Array(types.int64, 2, "A")
_NUMBER = types.int64


@njit(_NUMBER(_NUMBER, _NUMBER, _NUMBER, _NUMBER), nogil=True, cache=True)
def _kept(wide: int, rule: int, low: int, high: int) -> int:
    """A number brought back into a range by what the rule does beyond it."""
    if rule == SATURATE:
        return min(max(wide, low), high)
    if rule == WRAP:
        return ((wide - low) & (high - low)) + low
    if rule == ZERO:
        return wide if low <= wide <= high else 0
    return wide


@njit(
    types.void(_MATRIX, _MATRIX, _RULES, types.boolean, _START, _START, _OUT, _OUT, _OUT),
    nogil=True,
    cache=True,
)
def run(
    left: Any, right: Any, rules: Any, observed: bool, begun: Any, start: Any,
    values: Any, first: Any, second: Any,
) -> None:  # fmt: skip
    """Sums of `left` (M, K) and the columns `right` (P, K); otherwise as `staged.run`.

    `begun` is the exact start, which the order depends on; `start` is what the sum begins with.
    """
    depth = left.shape[1]
    taken = np.empty((2, depth + 1), np.int64)
    counts = np.empty(2, np.int64)
    rule, low, high = rules[0, 0], rules[0, 1], rules[0, 2]
    own, least_own, most_own = rules[1, 0], rules[1, 1], rules[1, 2]
    for row in range(len(left)):
        for column in range(len(right)):
            counts[:] = 0
            for k in range(depth):
                product = _kept(left[row, k] * right[column, k], own, least_own, most_own)
                sign = np.uintp(product < 0)
                taken[sign, np.uintp(counts[sign])] = product
                counts[sign] += 1
            total, held = begun[row, column], start[row, column]
            least, most, events = min(held, 0), max(held, 0), 0
            up, down = 0, 0
            for _ in range(depth):
                rise = (up < counts[0]) & ((total <= 0) | (down == counts[1]))
                # Both are read, so that no branch depends on a sign.
                above, below = taken[0, np.uintp(up)], taken[1, np.uintp(down)]
                term = above if rise else below
                up, down = up + rise, down + (not rise)
                total += term
                wide = held + term
                held = _kept(wide, rule, low, high)
                events += (wide < low) | (wide > high)
                least, most = min(least, held), max(most, held)
            values[row, column] = held
            first[row, column] = least if observed else events
            second[row, column] = most if observed else events
