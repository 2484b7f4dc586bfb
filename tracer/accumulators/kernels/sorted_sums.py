"""Sums in the order `sorted`: terms are taken against the sign of the exact sum so far."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.kernels.array_types import MATRIX_OUT, NUMBERS, START, TABLE, kernel
from tracer.accumulators.kernels.product_rounding import rounded
from tracer.accumulators.kernels.program_sums import into_range


@kernel(
    types.void(
        TABLE,
        TABLE,
        TABLE,
        NUMBERS,
        NUMBERS,
        types.boolean,
        START,
        START,
        MATRIX_OUT,
        MATRIX_OUT,
        MATRIX_OUT,
    )
)
def run(
    left: Any, right: Any, rules: Any, rounding: Any, salts: Any, observed: bool,
    exact_start: Any, start: Any, values: Any, first: Any, second: Any,
) -> None:  # fmt: skip
    """Sums of rows `left` (M, K) times columns `right` (P, K); other arguments as `program_sums`.

    The order depends on the exact sum, which begins with `exact_start`; the accumulator begins
    with `start`.
    """
    depth = left.shape[1]
    products = np.empty((2, depth + 1), np.int64)  # by sign: those of at least 0, those below
    counts = np.empty(2, np.int64)
    rule, low, high = rules[0, 0], rules[0, 1], rules[0, 2]
    product_rule, product_low, product_high = rules[1, 0], rules[1, 1], rules[1, 2]
    for row in range(len(left)):
        for column in range(len(right)):
            counts[:] = 0
            for k in range(depth):
                product = rounded(
                    left[row, k] * right[column, k], rounding[0], rounding[1], salts[k]
                )
                product = into_range(product, product_rule, product_low, product_high)
                product <<= rounding[0]
                sign = np.uintp(product < 0)
                products[sign, np.uintp(counts[sign])] = product
                counts[sign] += 1
            total, value = exact_start[row, column], start[row, column]
            least, most, events = min(value, 0), max(value, 0), 0
            up, down = 0, 0
            for _ in range(depth):
                rise = (up < counts[0]) & ((total <= 0) | (down == counts[1]))
                # Both are read, so that no branch depends on a sign.
                above, below = products[0, np.uintp(up)], products[1, np.uintp(down)]
                term = above if rise else below
                up, down = up + rise, down + (not rise)
                total += term
                wide = value + term
                value = into_range(wide, rule, low, high)
                events += (wide < low) | (wide > high)
                least, most = min(least, value), max(most, value)
            values[row, column] = value
            first[row, column] = least if observed else events
            second[row, column] = most if observed else events
