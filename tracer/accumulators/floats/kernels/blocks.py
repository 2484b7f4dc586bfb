"""Block multiply-adds whose terms are aligned, as `floats.oracle.blocks` defines them.

Units are powers of 2, and sums of a block have fewer than 2^53 of them: float64 is exact.
"""

from typing import Any

import numpy as np

from tracer.accumulators.floats.kernels.lanes import (
    COUNTS,
    FORMAT,
    FORMS,
    LANES,
    OUTS,
    ROW,
    SUMS,
    TABLE,
    TERM,
    are_alike,
    bits_of,
    down,
    float_of,
    have_places,
    is_outside,
    limited,
    nearest,
    power_of,
    raise_greatest,
    truncated,
    with_sign,
)
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    NUMBERS,
    array_at,
    free,
    helper,
    inlined,
    new_doubles,
    new_integers,
    repeat_type,
    start_of,
    tuple_type,
)

_THREE, _LIMITS = repeat_type(LANES, 3), repeat_type(types.float64, 3)
_SPARE = tuple_type(
    LANES, LANES, LANES, types.Array(types.float64, 2, "C"), types.Array(types.int64, 2, "C")
)
_INVERSE = np.int64(2 * 1023 << 52)
"""Less the bits of a power of 2, these are the bits of its inverse."""


@inlined(types.void(LANES, SUMS, types.float64, types.float64))
def _begin_greatest(greatest: Any, sums: Any, least: float, least_sum: float) -> None:
    """Lets the greatest exponents, as powers of 2, be those of the sums; 0 has none."""
    for i in range(greatest.size):
        size = abs(sums[0][i])
        power = power_of(size, least_sum)
        power = power if (size > 0) & (size - size == 0) else 0.0
        greatest[i] = power if power > least else least


@inlined(types.void(LANES, LANES, LANES, SUMS, types.float64))
def _align_sums(scales: Any, units: Any, greatest: Any, sums: Any, kept: float) -> None:
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


@inlined(types.void(LANES, LANES, SUMS, repeat_type(ROW, 4), repeat_type(types.float64, 4)))
def _add_4(units: Any, scales: Any, sums: Any, rows: Any, factors: Any) -> None:
    """Adds 4 products to each sum, which stays in a register."""
    a, b, c, d = rows
    _, exact, terms, swamped, _ = sums
    for i in range(units.size):
        scale, state = scales[i], (units[i], exact[i], terms[i], swamped[i])
        state = _added(state, factors[0] * a[i], scale)
        state = _added(state, factors[1] * b[i], scale)
        state = _added(state, factors[2] * c[i], scale)
        state = _added(state, factors[3] * d[i], scale)
        units[i], exact[i], terms[i], swamped[i] = state


@inlined(types.void(LANES, LANES, SUMS, FORMAT, types.float64, types.boolean))
def _round_sums(
    units: Any, greatest: Any, sums: Any, form: Any, unit: float, is_nearest: bool
) -> None:
    """Rounds the sums; `unit` is that of a term whose exponent is 0."""
    for i in range(units.size):
        number = units[i] * (greatest[i] * unit)
        size = abs(number)
        result = with_sign(nearest(size, form) if is_nearest else down(size, form), number)
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


@entry(lambda values, form, out: values.size == out.size, types.int64(ROW, FORMAT, LANES))
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


@helper(
    types.void(repeat_type(ROW, 2), repeat_type(TABLE, 2), repeat_type(types.int64, 2), SUMS,
               _THREE, FORMAT, _LIMITS, types.boolean)
)  # fmt: skip
def _block(
    left: Any, right: Any, part: Any, sums: Any, spare: Any, form: Any, limits: Any,
    is_nearest: bool,
) -> None:  # fmt: skip
    """Adds the products of a part, from its beginning to its end, to the sums of a row."""
    greatest, scales, units = spare
    least, least_sum, kept = limits
    factors, columns = left[0], right[0]
    k, end = part
    _begin_greatest(greatest, sums, least, least_sum)
    raise_greatest(greatest, right[1], left[1], k, end)
    _align_sums(scales, units, greatest, sums, kept)
    while k + 4 <= end:
        rows = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        four = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        _add_4(units, scales, sums, rows, four)
        k += 4
    _, exact, terms, swamped, _ = sums
    while k < end:
        row, factor = columns[k], factors[k]
        for i in range(units.size):
            state = (units[i], exact[i], terms[i], swamped[i])
            state = _added(state, factor * row[i], scales[i])
            units[i], exact[i], terms[i], swamped[i] = state
        k += 1
    _round_sums(units, greatest, sums, form, 1.0 / kept, is_nearest)


@entry(lambda left, right, low, ends, forms, limits, is_nearest, outs: (
        are_alike(*left)
        and are_alike(*right)
        and have_places(left[0], right[0], low, *outs)
        and are_alike(*ends)
        and ends[0].min(initial=0) >= 0
        and ends[0].max(initial=0) <= len(right[0])
    ),
    types.void(repeat_type(TABLE, 2), repeat_type(TABLE, 2), types.int64,
               repeat_type(NUMBERS, 2), FORMS, _LIMITS, types.boolean, OUTS))  # fmt: skip
def run(
    left: Any, right: Any, low: int, ends: Any, forms: Any, limits: Any, is_nearest: bool,
    outs: Any,
) -> None:  # fmt: skip
    """Sums of rows `left` (M, K) times columns `right` (K, n), float64; `low` is the first of P.

    Both are operands, and 2 to their exponents, 0 where there is none. `ends` are those of the
    blocks in k, and 1 for a block after which the sum is added to a total, and begins with 0 again;
    without any, the sum is the total. `outs` (M, P): totals, which begin as the start, in the
    format of a register; exact sums, terms, swamped terms, overflows.

    `forms` are the formats of sums and of totals. `limits` are powers of 2: the least greatest
    exponent, the least exponent of a sum, and 2 to the bits of fraction.
    """
    width = right[0].shape[1]
    high = low + width
    spare, apart = (new_doubles(width), new_doubles(width), new_doubles(width)), new_doubles(width)
    has_joins = False
    for join in ends[1]:
        has_joins |= join != 0
    for row in range(left[0].shape[0]):
        total = outs[0][row, low:high]
        values = apart if has_joins else total
        apart[:] = 0
        sums = (values, outs[1][row, low:high], outs[2][row, low:high], outs[3][row, low:high],
                outs[4][row, low:high])  # fmt: skip
        rows, begin = (left[0][row], left[1][row]), 0
        for number in range(ends[0].size):
            part = begin, ends[0][number]
            _block(rows, right, part, sums, spare, forms[0], limits, is_nearest)
            begin = ends[0][number]
            if ends[1][number]:
                _join(total, sums, forms[1])
    for memory in spare:
        free(memory)
    free(apart)


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
def _add_group(group: Any, counts: Any, units: Any, scales: Any, sums: Any) -> None:
    """Adds terms truncated to units; all products of one that vanishes are swamped."""
    for i in range(group.size):
        aligned = truncated(group[i] * scales[i])
        units[i] += aligned
        sums[3][i] += counts[i] if (group[i] != 0) & (aligned == 0) else 0


@helper(
    types.void(repeat_type(ROW, 3), repeat_type(TABLE, 3), repeat_type(types.int64, 3), SUMS,
               _SPARE, FORMAT, _LIMITS, types.boolean)
)  # fmt: skip
def _grouped_block(
    left: Any, right: Any, part: Any, sums: Any, spare: Any, form: Any, limits: Any,
    is_nearest: bool,
) -> None:  # fmt: skip
    """Adds the products of a part, from its beginning to its end, in groups of so many."""
    greatest, scales, units, terms, counts = spare
    least, least_sum, kept = limits
    begin, stop, group = part
    first, number = begin // group, -((begin - stop) // group)
    _begin_greatest(greatest, sums, least, least_sum)
    for index in range(number):
        place, values = first + index, terms[index]
        values[:] = 0.0
        counts[index][:] = 0
        for k in range(begin + index * group, min(begin + (index + 1) * group, stop)):
            _multiply(values, counts[index], sums, right[0][k], left[0][k], right[1][place],
                      left[1][place])  # fmt: skip
        _scale(values, greatest, right[1][place], left[1][place], right[2][place], left[2][place])
    _align_sums(scales, units, greatest, sums, kept)
    for index in range(number):
        _add_group(terms[index], counts[index], units, scales, sums)
    _round_sums(units, greatest, sums, form, 1.0 / kept, is_nearest)


def _groups_fit(
    left: Any, right: Any, low: int, sizes: Any, form: Any, limits: Any, is_nearest: bool, outs: Any
) -> bool:
    """Whether blocks are whole groups, each with a scale in every row and column."""
    (rows, depth), width, (length, group) = left[0].shape, right[0].shape[1], sizes
    return bool(
        have_places(left[0], right[0], low, *outs) and length > 0 < group and length % group == 0
        and are_alike(*left[1:]) and are_alike(*right[1:])
        and left[1].shape == (rows, -(-depth // group))
        and right[1].shape == (-(-depth // group), width)
    )  # fmt: skip


@entry(_groups_fit,
    types.void(repeat_type(TABLE, 3), repeat_type(TABLE, 3), types.int64,
               repeat_type(types.int64, 2), FORMAT, _LIMITS, types.boolean, OUTS))  # fmt: skip
def run_grouped(
    left: Any, right: Any, low: int, sizes: Any, form: Any, limits: Any, is_nearest: bool, outs: Any
) -> None:
    """As `run`, of blocks whose terms are sums of groups, as `floats.oracle` defines them.

    Rows and columns are elements, the scales of groups of them, (M, G) and (G, n), and 2 to the
    exponents of the scales. `sizes` are the products of a block, and of a term. Sums of a group
    have fewer than 53 bits, too.
    """
    depth, width = right[0].shape
    high, (length, group) = low + width, sizes
    shape = -(-length // group), width
    floats, counts = new_doubles((3 + shape[0]) * width), new_integers(shape[0] * width)
    spare = (floats[:width], floats[width : 2 * width], floats[2 * width : 3 * width],
             array_at(start_of(floats[3 * width :]), shape),
             array_at(start_of(counts), shape))  # fmt: skip
    for row in range(len(left[0])):
        rows = left[0][row], left[1][row], left[2][row]
        sums = (outs[0][row, low:high], outs[1][row, low:high], outs[2][row, low:high],
                outs[3][row, low:high], outs[4][row, low:high])  # fmt: skip
        for begin in range(0, depth, length):
            part = begin, min(begin + length, depth), group
            _grouped_block(rows, right, part, sums, spare, form, limits, is_nearest)
    free(floats)
    free(counts)
