"""Counts sums by the width they need and by histogram bin, and measures errors, of floats too."""

from typing import Any

import numpy as np
from llvmlite import ir

from tracer.accumulators.statistics.float_partial_sums import BELOW_ERRORS, ERROR_BINS, UNUSED_BITS
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    FLAT_OUT,
    TABLE,
    TABLE_OUT,
    emitted,
    free,
    helper,
    new_doubles,
    read_only,
    repeat_type,
    tuple_type,
    vector_type,
)

_PART = 256
"""Errors that are computed at once, in vectors; they are counted one by one."""
_VALUES, _ERRORS = read_only(types.float32), vector_type(types.float64)
_WIDTHS = 66
"""Widths of a 64-bit integer, and of one that is symmetric, from 0 on."""
_LOWEST = np.iinfo(np.int64).min


@emitted
def _leading_zeros(typingctx: Any, value: Any) -> Any:
    """Of a 64-bit integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@helper(inline="always")
def _width(value: int, lowest: int) -> int:
    """Bits of two's complement, if its 64 bits begin with `lowest`: -2^63, symmetric, or 0.

    65 for a number that is too low.
    """
    magnitude = value ^ (value >> 63)
    if value < 0 and lowest > _LOWEST:
        magnitude += 1
        if lowest == 0:
            return 65
    return 65 - _leading_zeros(magnitude)


@helper(inline="always")
def _bin(value: int, fraction: int, middle: int) -> int:
    """The bin of `bin_edges`, with 2^`fraction` bins an octave; 0 has the bin `middle`."""
    magnitude = value ^ (value >> 63)
    octave = max(63 - _leading_zeros(magnitude) - fraction, 0)
    # Each number of the first octaves has a bin; above, each octave adds 2^fraction bins.
    distance = (magnitude >> octave) + (octave << fraction)
    return middle + distance if value >= 0 else middle - 1 - distance


def _are_tables(
    sums: Any, lowest: int, fraction: int, widths: Any, histograms: Any, extremes: Any
) -> bool:
    """Whether the tables have a row for each row of sums, and the histograms a bin for any sum."""
    final, lows = sums[2], histograms[0]
    rows, last = len(final), (2 << fraction) - 1 + ((62 - fraction) << fraction)
    return bool(
        all(each.shape == final.shape for each in sums) and final.shape[1] > 0
        and all(each.shape == (rows, _WIDTHS) for each in widths)
        and all(each.size == lows.size for each in histograms) and last < lows.size // 2
        and extremes.shape == (4, rows) and 0 <= fraction <= 62
    )  # fmt: skip


@entry(_are_tables,
    types.void(repeat_type(TABLE, 3), types.int64, types.int64, repeat_type(TABLE_OUT, 2),
               repeat_type(FLAT_OUT, 3), TABLE_OUT))  # fmt: skip
def spread(
    sums: Any, lowest: int, fraction: int, widths: Any, histograms: Any, extremes: Any
) -> None:
    """Adds sums (rows, n) to counts by width, (rows, 66), and to histograms.

    `sums` are the least on the way, the greatest, and the final ones; so are `histograms`, and
    `widths` are those on the way, and at the end, in registers as `_width` has them. Writes to
    `extremes` (4, rows) the least of the least, the greatest of the greatest, and the least and the
    greatest of the final sums.
    """
    (low, high, final), (prefix_widths, final_widths) = sums, widths
    lows, highs, finals = histograms
    middle = finals.size // 2
    for row in range(final.shape[0]):
        bottom, top = low[row, 0], high[row, 0]
        least_final, most_final = final[row, 0], final[row, 0]
        for i in range(final.shape[1]):
            least, most, last = low[row, i], high[row, i], final[row, i]
            width = max(_width(least, lowest), _width(most, lowest))
            prefix_widths[row, np.uintp(width)] += 1
            final_widths[row, np.uintp(_width(last, lowest))] += 1
            lows[np.uintp(_bin(least, fraction, middle))] += 1
            highs[np.uintp(_bin(most, fraction, middle))] += 1
            finals[np.uintp(_bin(last, fraction, middle))] += 1
            bottom, top = min(bottom, least), max(top, most)
            least_final, most_final = min(least_final, last), max(most_final, last)
        extremes[0, row], extremes[1, row] = bottom, top
        extremes[2, row], extremes[3, row] = least_final, most_final


@entry(lambda values, exact, changed, largest, sums: (
        values.shape == exact.shape
        and sums.shape == (len(values), 2)
        and changed.size == largest.size == len(values)
    ),
    types.void(TABLE, TABLE, FLAT_OUT, FLAT_OUT, TABLE_OUT))  # fmt: skip
def errors(values: Any, exact: Any, changed: Any, largest: Any, sums: Any) -> None:
    """Adds up, by row, sums (rows, n) that are not exact, their largest and their total error.

    `sums` (rows, 2) are total errors in units of 2^32 and of 1.
    """
    for row in range(values.shape[0]):
        for i in range(values.shape[1]):
            error = abs(values[row, i] - exact[row, i])
            if error != 0:
                changed[row] += 1
                largest[row] = max(largest[row], error)
                sums[row, 0] += error >> 32
                sums[row, 1] += error & 0xFFFFFFFF


@helper(types.void(_VALUES, read_only(types.float64), _ERRORS))
def _errors(values: Any, exact: Any, out: Any) -> None:
    """Writes relative errors as `FloatTally` defines them; -1 where one is NaN."""
    for i in range(out.size):
        value, wanted = float(values[i]), exact[i]
        error = abs(value - wanted) / abs(wanted)
        error = error if error == error else np.inf  # infinity instead of another infinity
        error = 0.0 if value == wanted else error
        out[i] = error if (value == value) & (wanted == wanted) else -1.0


@entry(lambda values, exact, histogram: values.size == exact.size and histogram.size == ERROR_BINS,
    tuple_type(types.int64, types.float64)(_VALUES, read_only(types.float64), FLAT_OUT)
)  # fmt: skip
def count(values: Any, exact: Any, histogram: Any) -> Any:
    """Adds the errors of sums to a histogram of `bins`.

    Returns how many sums have no error, for they or their exact values are NaN, and the greatest
    error.
    """
    spare, none, greatest = new_doubles(_PART), 0, 0.0
    for low in range(0, values.size, _PART):
        high = min(low + _PART, values.size)
        errors = spare[: high - low]
        _errors(values[low:high], exact[low:high], errors)
        bits = errors.view(np.int64)
        for i in range(errors.size):
            if errors[i] < 0:
                none += 1
            else:
                greatest = max(greatest, errors[i])
                histogram[min(max((bits[i] >> UNUSED_BITS) - BELOW_ERRORS, 0), ERROR_BINS - 1)] += 1
    free(spare)
    return none, greatest
