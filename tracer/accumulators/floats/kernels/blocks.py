"""Block multiply-adds whose terms are aligned, as `floats.oracle.blocks` defines them.

Units are powers of 2, and sums of a block have fewer than 2^53 of them: float64 is exact.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.arrays import (
    FORMS,
    LANES,
    NUMBERS,
    OUTS,
    ROW,
    SUMS,
    TABLE,
    TERM,
    are_alike,
    have_places,
)
from tracer.accumulators.floats.kernels.rounding import (
    FORMAT,
    bits_of,
    down,
    float_of,
    inlined,
    is_outside,
    limited,
    nearest,
    power_of,
    truncated,
    with_sign,
)
from tracer.accumulators.kernels.array_types import kernel, several
from tracer.interpreter.compiled_code import entry

_INVERSE = np.int64(2 * 1023 << 52)
"""Less the bits of a power of 2, these are the bits of its inverse."""


@inlined(types.float64(types.float64, FORMAT, types.boolean))
def _rounded(number: float, form: Any, is_nearest: bool) -> float:
    size = abs(number)
    return with_sign(nearest(size, form) if is_nearest else down(size, form), number)


@inlined(types.void(LANES, SUMS, types.float64, types.float64))
def begin_greatest(greatest: Any, sums: Any, least: float, least_sum: float) -> None:
    """Lets the greatest exponents, as powers of 2, be those of the sums; 0 has none."""
    for i in range(greatest.size):
        size = abs(sums[0][i])
        power = power_of(size, least_sum)
        power = power if (size > 0) & (size - size == 0) else 0.0
        greatest[i] = power if power > least else least


@inlined(types.void(LANES, ROW, ROW, ROW, ROW, several(types.float64, 4)))
def _raise_4(greatest: Any, a: Any, b: Any, c: Any, d: Any, powers: Any) -> None:
    """Raises the greatest exponents to those of 4 products."""
    for i in range(greatest.size):
        first, second = powers[0] * a[i], powers[1] * b[i]
        third, fourth = powers[2] * c[i], powers[3] * d[i]
        first = first if first > second else second
        third = third if third > fourth else fourth
        first = first if first > third else third
        greatest[i] = first if first > greatest[i] else greatest[i]


@inlined(types.void(LANES, ROW, types.float64))
def _raise_1(greatest: Any, powers: Any, power: float) -> None:
    """Raises the greatest exponents to those of a product."""
    for i in range(greatest.size):
        product = power * powers[i]
        greatest[i] = product if product > greatest[i] else greatest[i]


@inlined(types.void(LANES, LANES, LANES, SUMS, types.float64))
def align_sums(scales: Any, units: Any, greatest: Any, sums: Any, kept: float) -> None:
    """Computes the units in 1 that the greatest exponents give, and begins with the sums in units.

    `kept` is 2 to the bits of fraction.
    """
    for i in range(scales.size):
        scales[i] = float_of(_INVERSE - bits_of(greatest[i])) * kept
        units[i] = truncated(sums[0][i] * scales[i])


@inlined(TERM(TERM, types.float64, types.float64))
def _added(state: Any, product: float, scale: float) -> Any:
    """Adds a product, truncated to units."""
    units, exact, terms, swamped = state
    aligned = truncated(product * scale)
    is_term = product != 0
    return units + aligned, exact + product, terms + is_term, swamped + (is_term & (aligned == 0))


@inlined(types.void(LANES, LANES, SUMS, ROW, types.float64))
def _add_1(units: Any, scales: Any, sums: Any, row: Any, factor: float) -> None:
    """Adds a product to each sum."""
    _, exact, terms, swamped, _ = sums
    for i in range(units.size):
        state = (units[i], exact[i], terms[i], swamped[i])
        state = _added(state, factor * row[i], scales[i])
        units[i], exact[i], terms[i], swamped[i] = state


@inlined(types.void(LANES, LANES, SUMS, ROW, ROW, ROW, ROW, several(types.float64, 4)))
def _add_4(
    units: Any, scales: Any, sums: Any, a: Any, b: Any, c: Any, d: Any, factors: Any
) -> None:
    """Adds 4 products to each sum, which stays in a register."""
    _, exact, terms, swamped, _ = sums
    for i in range(units.size):
        scale, state = scales[i], (units[i], exact[i], terms[i], swamped[i])
        state = _added(state, factors[0] * a[i], scale)
        state = _added(state, factors[1] * b[i], scale)
        state = _added(state, factors[2] * c[i], scale)
        state = _added(state, factors[3] * d[i], scale)
        units[i], exact[i], terms[i], swamped[i] = state


@inlined(types.void(LANES, LANES, SUMS, FORMAT, types.float64, types.boolean))
def round_sums(
    units: Any, greatest: Any, sums: Any, form: Any, unit: float, is_nearest: bool
) -> None:
    """Rounds the sums; `unit` is that of a term whose exponent is 0."""
    for i in range(units.size):
        result = _rounded(units[i] * (greatest[i] * unit), form, is_nearest)
        sums[4][i] |= is_outside(result, form)
        sums[0][i] = limited(result, form)


@inlined(types.void(LANES, SUMS, FORMAT))
def _join(total: Any, sums: Any, form: Any) -> None:
    """Adds the sums to each total, to nearest; the sums begin with 0 again."""
    for i in range(total.size):
        result = nearest(total[i] + sums[0][i], form)
        sums[4][i] |= is_outside(result, form)
        total[i] = limited(result, form)
        sums[0][i] = 0.0


@entry(lambda values, form, out: values.size == out.size)
@kernel(types.int64(ROW, FORMAT, LANES))
def powers(values: Any, form: Any, out: Any) -> int:
    """Writes 2 to the exponent of each value in its format; 0 for 0, infinity and NaN.

    Returns how many values are no numbers of the format.
    """
    others = 0
    for i in range(values.size):
        size = abs(values[i])
        is_finite = size - size == 0
        out[i] = power_of(size, form[2]) if (size > 0) & is_finite else 0.0
        others += is_finite & ((nearest(size, form) != size) | (size > form[4]))
    return others


@kernel(
    types.void(several(ROW, 2), several(TABLE, 2), types.int64, types.int64, SUMS,
               several(LANES, 3), FORMAT,
               several(types.float64, 3), types.boolean)
)  # fmt: skip
def _block(
    left: Any, right: Any, begin: int, end: int, sums: Any, spare: Any, form: Any, limits: Any,
    is_nearest: bool,
) -> None:  # fmt: skip
    """Adds products `begin` to `end` to the sums of a row."""
    greatest, scales, units = spare
    least, least_sum, kept = limits
    factors, powers = left
    columns, column_powers = right
    begin_greatest(greatest, sums, least, least_sum)
    k = begin
    while k + 4 <= end:
        _raise_4(
            greatest, column_powers[k], column_powers[k + 1], column_powers[k + 2],
            column_powers[k + 3],
            (powers[k], powers[k + 1], powers[k + 2], powers[k + 3]),
        )  # fmt: skip
        k += 4
    while k < end:
        _raise_1(greatest, column_powers[k], powers[k])
        k += 1
    align_sums(scales, units, greatest, sums, kept)
    k = begin
    while k + 4 <= end:
        _add_4(
            units, scales, sums, columns[k], columns[k + 1], columns[k + 2], columns[k + 3],
            (factors[k], factors[k + 1], factors[k + 2], factors[k + 3]),
        )  # fmt: skip
        k += 4
    while k < end:
        _add_1(units, scales, sums, columns[k], factors[k])
        k += 1
    round_sums(units, greatest, sums, form, 1.0 / kept, is_nearest)


@entry(
    lambda left, right, low, ends, joins, forms, limits, is_nearest, outs: (
        are_alike(*left)
        and are_alike(*right)
        and have_places(left[0], right[0], low, *outs)
        and ends.size == joins.size
        and ends.min(initial=0) >= 0
        and ends.max(initial=0) <= len(right[0])
    )
)
@kernel(
    types.void(several(TABLE, 2), several(TABLE, 2), types.int64,
               NUMBERS, NUMBERS, FORMS, several(types.float64, 3), types.boolean, OUTS)
)  # fmt: skip
def run(
    left: Any, right: Any, low: int, ends: Any, joins: Any, forms: Any, limits: Any,
    is_nearest: bool, outs: Any,
) -> None:  # fmt: skip
    """Sums of rows `left` (M, K) times columns `right` (K, n), float64; `low` is the first of P.

    Both are operands, and 2 to their exponents, 0 where there is none. `ends` are those of the
    blocks in k. After a block that `joins` the sum is added to a total, and begins with 0 again;
    without any, the sum is the total. `outs` (M, P): totals, which begin as the start, in the
    format of a register; exact sums, terms, swamped terms, overflows.

    `forms` are the formats of sums and of totals. `limits` are powers of 2: the least greatest
    exponent, the least exponent of a sum, and 2 to the bits of fraction.
    """
    width = right[0].shape[1]
    high = low + width
    spare = np.zeros(width), np.zeros(width), np.zeros(width)
    has_joins = False
    for each in joins:
        has_joins |= each != 0
    for row in range(left[0].shape[0]):
        total = outs[0][row, low:high]
        values = np.zeros(width) if has_joins else total
        sums = (values, outs[1][row, low:high], outs[2][row, low:high], outs[3][row, low:high],
                outs[4][row, low:high])  # fmt: skip
        begin = 0
        for number in range(ends.size):
            rows = left[0][row], left[1][row]
            _block(
                rows, right, begin, ends[number], sums, spare, forms[0], limits,
                is_nearest,
            )  # fmt: skip
            begin = ends[number]
            if joins[number]:
                _join(total, sums, forms[1])
