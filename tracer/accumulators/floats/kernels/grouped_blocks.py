"""Block multiply-adds whose terms are sums of groups, as `floats.scaled_blocks` defines them.

Sums of a group, and of a block in units, have fewer than 53 bits: float64 is exact.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.arrays import (
    COUNTS,
    LANES,
    OUTS,
    ROW,
    SUMS,
    TABLE,
    are_alike,
    have_places,
)
from tracer.accumulators.floats.kernels.blocks import align_sums, begin_greatest, round_sums
from tracer.accumulators.floats.kernels.rounding import FORMAT, inlined, truncated
from tracer.accumulators.kernels.array_types import each, kernel, several
from tracer.interpreter.compiled_code import entry


@inlined(types.void(LANES, COUNTS, SUMS, ROW, types.float64, ROW, types.float64))
def _multiply(
    group: Any, counts: Any, sums: Any, row: Any, factor: float, scales: Any, scale: float
) -> None:
    """Adds a product of elements to the sum of a group, and counts it if it is not 0."""
    _, exact, terms, _, _ = sums
    for i in range(group.size):
        product = factor * row[i]
        scaled = product * (scale * scales[i])
        is_term = scaled != 0
        group[i] += product
        counts[i] += is_term
        terms[i] += is_term
        exact[i] += scaled


@inlined(types.void(LANES, LANES, ROW, types.float64, ROW, types.float64))
def _scale(group: Any, greatest: Any, scales: Any, scale: float, powers: Any, power: float) -> None:
    """Multiplies the sums of a group by their scales, and raises the greatest exponents."""
    for i in range(group.size):
        term = group[i] * (scale * scales[i])
        has_exponent = (term != 0) & (term - term == 0)
        product = power * powers[i] if has_exponent else 0.0
        greatest[i] = product if product > greatest[i] else greatest[i]
        group[i] = term


@inlined(types.void(LANES, COUNTS, LANES, LANES, SUMS))
def _add(group: Any, counts: Any, units: Any, scales: Any, sums: Any) -> None:
    """Adds terms truncated to units; all products of one that vanishes are swamped."""
    for i in range(group.size):
        aligned = truncated(group[i] * scales[i])
        units[i] += aligned
        sums[3][i] += counts[i] if (group[i] != 0) & (aligned == 0) else 0


_TERMS = each(types.Array(types.float64, 2, "C"), types.Array(types.int64, 2, "C"))


@kernel(
    types.void(several(ROW, 3), several(TABLE, 3), types.int64, types.int64,
               types.int64, SUMS, several(LANES, 3), _TERMS, FORMAT,
               several(types.float64, 3), types.boolean)
)  # fmt: skip
def _block(
    left: Any, right: Any, begin: int, stop: int, group: int, sums: Any, spare: Any, terms: Any,
    form: Any, limits: Any, is_nearest: bool,
) -> None:  # fmt: skip
    """Adds products `begin` to `stop` to the sums of a row."""
    greatest, scales, units = spare
    least, least_sum, kept = limits
    first, number = begin // group, -((begin - stop) // group)
    begin_greatest(greatest, sums, least, least_sum)
    for index in range(number):
        place, values, counts = first + index, terms[0][index], terms[1][index]
        values[:] = 0.0
        counts[:] = 0
        for k in range(begin + index * group, min(begin + (index + 1) * group, stop)):
            _multiply(values, counts, sums, right[0][k], left[0][k], right[1][place],
                      left[1][place])  # fmt: skip
        _scale(values, greatest, right[1][place], left[1][place], right[2][place], left[2][place])
    align_sums(scales, units, greatest, sums, kept)
    for index in range(number):
        _add(terms[0][index], terms[1][index], units, scales, sums)
    round_sums(units, greatest, sums, form, 1.0 / kept, is_nearest)


def _fits(
    left: Any, right: Any, low: int, length: int, group: int, form: Any, limits: Any,
    is_nearest: bool, outs: Any,
) -> bool:  # fmt: skip
    """Whether blocks are whole groups, each with a scale in every row and column."""
    (rows, depth), width = left[0].shape, right[0].shape[1]
    return bool(
        have_places(left[0], right[0], low, *outs) and length > 0 < group and length % group == 0
        and are_alike(*left[1:]) and are_alike(*right[1:])
        and left[1].shape == (rows, -(-depth // group))
        and right[1].shape == (-(-depth // group), width)
    )  # fmt: skip


@entry(_fits)
@kernel(
    types.void(several(TABLE, 3), several(TABLE, 3), types.int64, types.int64, types.int64, FORMAT,
               several(types.float64, 3), types.boolean, OUTS)
)  # fmt: skip
def run(
    left: Any, right: Any, low: int, length: int, group: int, form: Any, limits: Any,
    is_nearest: bool, outs: Any,
) -> None:  # fmt: skip
    """Sums of rows `left` (M, K) times columns `right` (K, n), float64; `low` is the first of P.

    Both are elements, the scales of groups of them, (M, G) and (G, n), and 2 to the exponents of
    the scales. A block has `length` products, `group` of which are a term. `outs` (M, P): sums,
    which begin as the start; exact sums, terms, swamped terms, overflows. `limits` are powers of 2:
    the least greatest exponent, the least exponent of a sum, and 2 to the bits of fraction.
    """
    depth, width = right[0].shape
    high = low + width
    spare = np.zeros(width), np.zeros(width), np.zeros(width)
    number = -(-length // group)
    terms = np.zeros((number, width)), np.zeros((number, width), np.int64)
    for row in range(len(left[0])):
        rows = left[0][row], left[1][row], left[2][row]
        sums = (outs[0][row, low:high], outs[1][row, low:high], outs[2][row, low:high],
                outs[3][row, low:high], outs[4][row, low:high])  # fmt: skip
        for begin in range(0, depth, length):
            _block(
                rows, right, begin, min(begin + length, depth), group, sums, spare, terms, form,
                limits, is_nearest,
            )  # fmt: skip
