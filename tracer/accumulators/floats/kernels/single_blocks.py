"""Block multiply-adds into float32, in lanes of float32 and int32, where these hold every unit.

`single_sums` says where that is. Units of a block are int32: products are truncated to them by
their conversion.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.arrays import are_alike, have_places
from tracer.accumulators.floats.kernels.rounding import inlined
from tracer.accumulators.floats.kernels.singles import (
    COUNTS,
    FORMAT,
    SINGLES,
    VALUES,
    bits_of,
    float_of,
    nearest,
)
from tracer.accumulators.kernels.array_types import each, flat, kernel, several
from tracer.interpreter.compiled_code import entry

_ROW = types.Array(types.float32, 1, "C", readonly=True)
_LANES, _COUNTS = flat(types.float32), flat(types.int32)
_FOUR, _FOUR_ROWS = several(types.float32, 4), several(_ROW, 4)
_EXPONENT = np.int32(0x7F800000)
_INVERSE = np.int32(2 * 127 << 23)
"""Less the bits of a power of 2, these are the bits of its inverse."""


@entry(lambda values, form, largest, out: values.size == out.size)
@kernel(types.int64(_ROW, FORMAT, types.float32, _LANES))
def powers(values: Any, form: Any, largest: float, out: Any) -> int:
    """Writes 2 to the exponent of each finite value in its format; 0 for 0.

    Returns how many values are no numbers of the format.
    """
    others = np.int32(0)
    for i in range(values.size):
        size = abs(values[i])
        power = float_of(np.int32(bits_of(size) & _EXPONENT))
        power = power if power > form[1] else form[1]
        out[i] = power if size > 0 else np.float32(0)
        others += np.int32((nearest(size, form) != size) | (size > largest))
    return int(others)


@inlined(types.void(_LANES, _LANES, types.float32))
def _begin(greatest: Any, sums: Any, least: float) -> None:
    """Lets the greatest exponents, as powers of 2, be those of the sums, and `least` at least."""
    for i in range(greatest.size):
        power = float_of(np.int32(bits_of(sums[i]) & _EXPONENT))
        greatest[i] = power if power > least else least


@inlined(types.void(_LANES, _FOUR_ROWS, _FOUR))
def _raise_4(greatest: Any, rows: Any, powers: Any) -> None:
    """Raises the greatest exponents to those of 4 products."""
    a, b, c, d = rows
    for i in range(greatest.size):
        first, second = powers[0] * a[i], powers[1] * b[i]
        third, fourth = powers[2] * c[i], powers[3] * d[i]
        first = first if first > second else second
        third = third if third > fourth else fourth
        first = first if first > third else third
        greatest[i] = first if first > greatest[i] else greatest[i]


@inlined(types.void(_LANES, _ROW, types.float32))
def _raise_1(greatest: Any, powers: Any, power: float) -> None:
    for i in range(greatest.size):
        product = power * powers[i]
        greatest[i] = product if product > greatest[i] else greatest[i]


@inlined(types.void(_LANES, _COUNTS, _LANES, _LANES, types.float32))
def _align(scales: Any, units: Any, greatest: Any, sums: Any, kept: float) -> None:
    """Computes the units in 1, and begins with the sums in units."""
    for i in range(scales.size):
        scales[i] = float_of(np.int32(_INVERSE - bits_of(greatest[i]))) * kept
        units[i] = np.int32(sums[i] * scales[i])


@inlined(types.void(_COUNTS, _COUNTS, _LANES, _FOUR_ROWS, _FOUR))
def _add_4(units: Any, lost: Any, scales: Any, rows: Any, factors: Any) -> None:
    """Adds 4 products to each sum, which stays in a register."""
    a, b, c, d = rows
    for i in range(units.size):
        scale = scales[i]
        first, second = np.int32(factors[0] * a[i] * scale), np.int32(factors[1] * b[i] * scale)
        third, fourth = np.int32(factors[2] * c[i] * scale), np.int32(factors[3] * d[i] * scale)
        units[i] = np.int32(units[i] + first + second + third + fourth)
        none = np.int32(first == 0) + np.int32(second == 0)
        lost[i] = np.int32(lost[i] + none + np.int32(third == 0) + np.int32(fourth == 0))


@inlined(types.void(_COUNTS, _COUNTS, _LANES, _ROW, types.float32))
def _add_1(units: Any, lost: Any, scales: Any, row: Any, factor: float) -> None:
    for i in range(units.size):
        aligned = np.int32(factor * row[i] * scales[i])
        units[i] = np.int32(units[i] + aligned)
        lost[i] = np.int32(lost[i] + np.int32(aligned == 0))


@inlined(types.void(_COUNTS, _LANES, _LANES, types.float32, types.boolean))
def _end(units: Any, greatest: Any, sums: Any, unit: float, is_nearest: bool) -> None:
    """Rounds the sums to float32; `unit` is that of a term whose exponent is 0."""
    for i in range(units.size):
        size = abs(units[i])
        single = np.float32(size)
        is_above = (np.int32(single) > size) & (not is_nearest)
        single = float_of(np.int32(bits_of(single) - np.int32(is_above)))
        result = single * (greatest[i] * unit)
        sums[i] = -result if units[i] < 0 else result


@inlined(
    types.void(several(_ROW, 2), several(SINGLES, 2), types.int64, types.int64,
               each(_LANES, _COUNTS), each(_LANES, _LANES, _COUNTS), several(types.float32, 3),
               types.boolean)
)  # fmt: skip
def _block(
    left: Any, right: Any, begin: int, end: int, sums: Any, spare: Any, limits: Any,
    is_nearest: bool,
) -> None:  # fmt: skip
    """Adds products `begin` to `end` to the sums of a row."""
    greatest, scales, units = spare
    values, lost = sums
    factors, powers = left
    columns, column_powers = right
    _begin(greatest, values, limits[0])
    k = begin
    while k + 4 <= end:
        rows = column_powers[k], column_powers[k + 1], column_powers[k + 2], column_powers[k + 3]
        _raise_4(greatest, rows, (powers[k], powers[k + 1], powers[k + 2], powers[k + 3]))
        k += 4
    while k < end:
        _raise_1(greatest, column_powers[k], powers[k])
        k += 1
    _align(scales, units, greatest, values, limits[1])
    k = begin
    while k + 4 <= end:
        rows = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        four = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        _add_4(units, lost, scales, rows, four)
        k += 4
    while k < end:
        _add_1(units, lost, scales, columns[k], factors[k])
        k += 1
    _end(units, greatest, values, limits[2], is_nearest)


@entry(
    lambda left, right, low, length, limits, is_nearest, values, lost: (
        are_alike(*left)
        and are_alike(*right)
        and length > 0
        and have_places(left[0], right[0], low, values, lost)
    )
)
@kernel(
    types.void(several(SINGLES, 2), several(SINGLES, 2), types.int64, types.int64,
               several(types.float32, 3), types.boolean, VALUES, COUNTS)
)  # fmt: skip
def run(
    left: Any, right: Any, low: int, length: int, limits: Any, is_nearest: bool, values: Any,
    lost: Any,
) -> None:  # fmt: skip
    """Sums rows `left` (M, K) times columns `right` (K, n), in blocks of `length` products.

    Both are operands, and 2 to their exponents, 0 for 0. `low` is the first column of P. `limits`
    are the least greatest exponent, as a power, 2 to the bits of fraction, and its inverse.
    `values` (M, P) begin as the start; `lost` (M, P), int32, begin with 0: products, those of 0
    too, of which alignment leaves no bit.
    """
    depth, width = right[0].shape
    high = low + width
    spare = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.int32)
    for row in range(len(values)):
        rows, sums = (left[0][row], left[1][row]), (values[row, low:high], lost[row, low:high])
        for begin in range(0, depth, length):
            _block(rows, right, begin, min(begin + length, depth), sums, spare, limits, is_nearest)
