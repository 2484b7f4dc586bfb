"""Sums in lanes of float32, twice as many as of float64, where no step of them loses a bit.

`compiled_sums` says where that is. Units of a block multiply-add are int32: products are truncated
to them by their conversion. What is counted beside the sums does not depend on their rounding:
`count` computes it, with the sums of the products in float64.
"""

from typing import Any

import numpy as np

from tracer.accumulators.floats.kernels.lanes import (
    LANES,
    SINGLE_LANES,
    SINGLE_ROW,
    are_alike,
    bits_of,
    float_of,
    fused,
    have_places,
    raise_greatest,
)
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    free,
    inlined,
    new_counts,
    new_floats,
    read_only,
    repeat_type,
    tuple_type,
    vector_type,
)

FORMAT = repeat_type(types.float32, 2)
"""1.5 times 2^23 units of 1; the least exponent, as a power."""
_FORMS = repeat_type(FORMAT, 2)
_TABLE, _COUNTS = read_only(types.float32, 2), vector_type(types.int32)
_VALUES_OUT, _COUNTS_OUT = types.Array(types.float32, 2, "C"), types.Array(types.int32, 2, "C")
_FOUR_ROWS, _FOUR = repeat_type(SINGLE_ROW, 4), repeat_type(types.float32, 4)
_FOUR_WIDE = repeat_type(types.float64, 4)
_TERM = tuple_type(types.float32, types.int32)
"""A sum on its way, and the products that did not change it."""
_EXPONENT = np.int32(0x7F800000)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_INVERSE = np.int32(2 * 127 << 23)
"""Less the bits of a power of 2, these are the bits of its inverse."""


@entry(lambda values: True, tuple_type(types.int32, types.float32, types.float32)(SINGLE_ROW))
def measured(values: Any) -> Any:
    """Returns the bits that any value has, the least magnitude other than 0, and the greatest.

    Infinity and NaN have greater magnitudes than numbers, as integers.
    """
    bits, least, greatest = np.int32(0), np.int32(_EXPONENT), np.int32(0)
    for i in range(values.size):
        magnitude = np.int32(bits_of(values[i]) & _MAGNITUDE)
        bits |= magnitude
        greatest = max(greatest, magnitude)
        least = min(least, magnitude if magnitude != 0 else _EXPONENT)
    return bits, float_of(least), float_of(greatest)


@inlined(types.float32(types.float32, types.float32, FORMAT))
def _at(number: float, power: float, form: Any) -> float:
    """Rounds to nearest the units of an exponent; their multiple that is added fits in a step."""
    return fused(power, -form[0], fused(power, form[0], number))


@inlined(types.float32(types.float32, FORMAT))
def _nearest(number: float, form: Any) -> float:
    """Rounds to nearest, ties to even, as `lanes.nearest` does; 0 is +0."""
    power = float_of(np.int32(bits_of(number) & _EXPONENT))
    return _at(number, power if power > form[1] else form[1], form)


@inlined(types.float32(types.float32, FORMAT))
def _nearest_sum(number: float, form: Any) -> float:
    """Rounds a sum of multiples of the least unit: it is exact where it has few of them."""
    return _at(number, float_of(np.int32(bits_of(number) & _EXPONENT)), form)


@inlined(types.float32(types.float32, types.float32, types.boolean))
def _product(a: float, b: float, is_exact: bool) -> float:
    """a b, exact or rounded to odd: a second rounding, to 22 bits or fewer, is exact."""
    product = a * b
    if is_exact:
        return product
    error, bits = fused(a, b, -product), bits_of(product)
    towards_0 = np.int32(bits + ((bits_of(error) ^ bits) >> 31))  # less 1 where signs differ
    return float_of(np.int32(towards_0 | 1) if error != 0 else bits)


@inlined(_TERM(_TERM, types.float32, types.float32, _FORMS, types.boolean))
def _added(state: Any, a: float, b: float, forms: Any, is_exact: bool) -> Any:
    """Adds the product of a and b."""
    before, unchanged = state
    product = _nearest(_product(a, b, is_exact), forms[1])
    after = _nearest_sum(before + product, forms[0])
    return after, np.int32(unchanged + np.int32(after == before))


@inlined(types.void(SINGLE_LANES, _COUNTS, _FOUR_ROWS, _FOUR, _FORMS, types.boolean))
def _step_4(
    values: Any, unchanged: Any, rows: Any, factors: Any, forms: Any, is_exact: bool
) -> None:
    """Adds 4 terms to each sum, which stays in a register."""
    a, b, c, d = rows
    for i in range(values.size):
        state = (values[i], unchanged[i])
        state = _added(state, factors[0], a[i], forms, is_exact)
        state = _added(state, factors[1], b[i], forms, is_exact)
        state = _added(state, factors[2], c[i], forms, is_exact)
        state = _added(state, factors[3], d[i], forms, is_exact)
        values[i], unchanged[i] = state


@inlined(types.void(SINGLE_LANES, _COUNTS, SINGLE_ROW, _TABLE, _FORMS, types.boolean))
def _add_row(sums: Any, counts: Any, factors: Any, right: Any, forms: Any, is_exact: bool) -> None:
    """Adds the terms of a row to its sums."""
    k, depth = 0, factors.size
    while k + 4 <= depth:
        rows = right[k], right[k + 1], right[k + 2], right[k + 3]
        four = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        _step_4(sums, counts, rows, four, forms, is_exact)
        k += 4
    while k < depth:
        row, factor = right[k], factors[k]
        for i in range(sums.size):
            state = (sums[i], counts[i])
            sums[i], counts[i] = _added(state, factor, row[i], forms, is_exact)
        k += 1


@entry(lambda left, right, low, forms, is_exact, *outs: have_places(left, right, low, *outs),
    types.void(_TABLE, _TABLE, types.int64, _FORMS, types.boolean, _VALUES_OUT, _COUNTS_OUT)
)  # fmt: skip
def sequential(
    left: Any, right: Any, low: int, forms: Any, is_exact: bool, values: Any, unchanged: Any
) -> None:
    """Sums term after term, to nearest: rows `left` (M, K) times columns `right` (K, n).

    `low` is the first column of P. `forms` are those of sums and of products; `is_exact` says that
    float32 holds every product. `values` (M, P), float32, begin as the start in its format;
    `unchanged` (M, P), int32, begin with 0: products, those of 0 too, that leave a sum as it is.
    """
    high = low + right.shape[1]
    for row in range(len(left)):
        sums, counts = values[row, low:high], unchanged[row, low:high]
        if is_exact:  # each way has its own loop, in which the way is constant
            _add_row(sums, counts, left[row], right, forms, True)
        else:
            _add_row(sums, counts, left[row], right, forms, False)


@entry(lambda values, form, largest, out: values.size == out.size,
    types.int64(SINGLE_ROW, FORMAT, types.float32, SINGLE_LANES))  # fmt: skip
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
        others += np.int32((_nearest(size, form) != size) | (size > largest))
    return int(others)


@inlined(types.void(_COUNTS, _COUNTS, SINGLE_LANES, _FOUR_ROWS, _FOUR))
def _add_4(units: Any, lost: Any, scales: Any, rows: Any, factors: Any) -> None:
    """Adds 4 products to each sum of a block, which stays in a register."""
    a, b, c, d = rows
    for i in range(units.size):
        scale = scales[i]
        first, second = np.int32(factors[0] * a[i] * scale), np.int32(factors[1] * b[i] * scale)
        third, fourth = np.int32(factors[2] * c[i] * scale), np.int32(factors[3] * d[i] * scale)
        units[i] = np.int32(units[i] + first + second + third + fourth)
        none = np.int32(first == 0) + np.int32(second == 0)
        lost[i] = np.int32(lost[i] + none + np.int32(third == 0) + np.int32(fourth == 0))


@inlined(types.void(_COUNTS, SINGLE_LANES, SINGLE_LANES, types.float32, types.boolean))
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
    types.void(repeat_type(SINGLE_ROW, 2), repeat_type(_TABLE, 2), types.int64, types.int64,
               tuple_type(SINGLE_LANES, _COUNTS), tuple_type(SINGLE_LANES, SINGLE_LANES, _COUNTS),
               repeat_type(types.float32, 3), types.boolean)
)  # fmt: skip
def _block(
    left: Any, right: Any, begin: int, end: int, sums: Any, spare: Any, limits: Any,
    is_nearest: bool,
) -> None:  # fmt: skip
    """Adds products `begin` to `end` to the sums of a row."""
    greatest, scales, units = spare
    values, lost = sums
    factors, columns = left[0], right[0]
    for i in range(greatest.size):  # the exponents of the sums, as powers of 2
        power = float_of(np.int32(bits_of(values[i]) & _EXPONENT))
        greatest[i] = power if power > limits[0] else limits[0]
    raise_greatest(greatest, right[1], left[1], begin, end)
    for i in range(scales.size):  # the units in 1; begins with the sums in units
        scales[i] = float_of(np.int32(_INVERSE - bits_of(greatest[i]))) * limits[1]
        units[i] = np.int32(values[i] * scales[i])
    k = begin
    while k + 4 <= end:
        rows = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        four = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        _add_4(units, lost, scales, rows, four)
        k += 4
    while k < end:
        row, factor = columns[k], factors[k]
        for i in range(units.size):
            aligned = np.int32(factor * row[i] * scales[i])
            units[i] = np.int32(units[i] + aligned)
            lost[i] = np.int32(lost[i] + np.int32(aligned == 0))
        k += 1
    _end(units, greatest, values, limits[2], is_nearest)


@entry(lambda left, right, low, length, limits, is_nearest, values, lost: (
        are_alike(*left)
        and are_alike(*right)
        and length > 0
        and have_places(left[0], right[0], low, values, lost)
    ),
    types.void(repeat_type(_TABLE, 2), repeat_type(_TABLE, 2), types.int64, types.int64,
               repeat_type(types.float32, 3), types.boolean, _VALUES_OUT, _COUNTS_OUT))  # fmt: skip
def blocks(
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
    spare = new_floats(width), new_floats(width), new_counts(width)
    for row in range(len(values)):
        rows, sums = (left[0][row], left[1][row]), (values[row, low:high], lost[row, low:high])
        for begin in range(0, depth, length):
            _block(rows, right, begin, min(begin + length, depth), sums, spare, limits, is_nearest)
    free(spare[0])
    free(spare[1])
    free(spare[2])


@inlined(types.void(LANES, LANES, _FOUR_ROWS, _FOUR_WIDE, _FOUR_WIDE))
def _add_4_wide(first: Any, second: Any, rows: Any, ones: Any, others: Any) -> None:
    """Adds 4 products to the sums of two rows in float64, which stay in registers."""
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


@inlined(types.void(LANES, SINGLE_ROW, types.float64))
def _add_wide(sums: Any, row: Any, factor: float) -> None:
    for i in range(sums.size):
        sums[i] = fused(factor, float(row[i]), sums[i])


@inlined(types.void(_TABLE, _TABLE, types.int64, types.Array(types.float64, 2, "C")))
def _add_exact(left: Any, right: Any, low: int, exact: Any) -> None:
    """Adds all products to the exact sums, in the order of k."""
    (rows, depth), high = left.shape, low + right.shape[1]
    for row in range(0, rows - 1, 2):
        one, other = left[row], left[row + 1]
        first, second = exact[row, low:high], exact[row + 1, low:high]
        k = 0
        while k + 4 <= depth:
            _add_4_wide(
                first, second, (right[k], right[k + 1], right[k + 2], right[k + 3]),
                (float(one[k]), float(one[k + 1]), float(one[k + 2]), float(one[k + 3])),
                (float(other[k]), float(other[k + 1]), float(other[k + 2]), float(other[k + 3])),
            )  # fmt: skip
            k += 4
        while k < depth:
            _add_wide(first, right[k], float(one[k]))
            _add_wide(second, right[k], float(other[k]))
            k += 1
    if rows % 2:
        for k in range(depth):
            _add_wide(exact[rows - 1, low:high], right[k], float(left[rows - 1, k]))


@inlined(types.void(_COUNTS, SINGLE_ROW, types.int32))
def _count_others(counts: Any, row: Any, one: int) -> None:
    """Adds `one` where a number is not 0."""
    for i in range(counts.size):
        counts[i] = np.int32(counts[i] + (one if row[i] != 0 else np.int32(0)))


@entry(have_places,
    types.void(_TABLE, _TABLE, types.int64, types.Array(types.float64, 2, "C"), _COUNTS_OUT,
               _COUNTS_OUT))  # fmt: skip
def count(left: Any, right: Any, low: int, exact: Any, terms: Any, lost: Any) -> None:
    """Computes what is counted beside the sums of rows `left` (M, K) and columns `right` (K, n).

    `low` is the first column of P. Adds to `exact` (M, P), float64, the products; and writes to
    `terms` (M, P), int32, how many are not 0. `lost` (M, P), int32, has products that are lost, all
    those of 0 too, which it leaves out.
    """
    _add_exact(left, right, low, exact)
    (rows, depth), width = left.shape, right.shape[1]
    others = new_counts(width)
    for k in range(depth):
        _count_others(others, right[k], np.int32(1))
    for row in range(rows):
        counts, of_row = terms[row, low : low + width], lost[row, low : low + width]
        for i in range(width):  # numba compiles a slice with the text of an error
            counts[i] = others[i]
        for k in range(depth):
            if left[row, k] == 0:
                _count_others(counts, right[k], np.int32(-1))
        for i in range(width):
            of_row[i] = np.int32(of_row[i] + counts[i] - depth)
    free(others)
