"""Arithmetic on lanes of floats, which vectors have; rounding is that of `floats.casting`.

A number is rounded by adding, and subtracting again, 1.5 times the power of 2 whose float64 has the
wanted unit: the processor rounds to nearest, ties to even. A sum of 0 is +0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from tracer.accumulators.floats import kernels
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    emitted,
    inlined,
    read_only,
    repeat_type,
    tuple_type,
    vector_type,
)

RNE, RZ, FLOOR, SR = range(4)
FORMAT = repeat_type(types.float64, 6)
"""As `casting.wide_format` makes it: 1.5 times 2^52 units of 1; the unit of 1; the least
exponent, as a power; numbers below this are 0; the largest number; what is beyond."""

ROW, TABLE = read_only(types.float64), read_only(types.float64, 2)
LANES, COUNTS = vector_type(types.float64), vector_type(types.int64)
SINGLE_ROW, SINGLE_LANES = read_only(types.float32), vector_type(types.float32)
_FLOATS, _COUNTS = types.Array(types.float64, 2, "C"), types.Array(types.int64, 2, "C")
SUMS = tuple_type(LANES, LANES, COUNTS, COUNTS, COUNTS)
"""Sums of neighbouring columns: values, exact sums, terms, swamped terms, overflows."""
OUTS = tuple_type(_FLOATS, _FLOATS, _COUNTS, _COUNTS, _COUNTS)
"""The same of all rows and columns."""
FORMS = repeat_type(FORMAT, 2)
"""The formats of sums, and of products or of sums that are joined."""
TERM = tuple_type(types.float64, types.float64, types.int64, types.int64)
"""A sum on its way: value, exact sum, terms, swamped terms."""

_EXPONENT = np.int64(0x7FF0000000000000)
_HUGE = 2.0**400
"""More than any product: infinity is rounded as if it had this exponent, and stays."""
_SHIFT_1, _SHIFT_2 = (np.uint64(bits) for bits, _ in kernels.MIXERS)
_FACTOR_1, _FACTOR_2 = (np.uint64(factor) for _, factor in kernels.MIXERS)
_LAST_SHIFT, _UNUSED = np.uint64(kernels.LAST_SHIFT), np.uint64(64 - kernels.BITS)
_DRAW_UNIT = 2.0**-kernels.BITS


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


@emitted
def bits_of(_: Any, number: Any) -> Any:
    """The bits of a float: an integer of its width."""
    kind = types.int32 if number == types.float32 else types.int64
    return kind(number), _bitcast


@emitted
def float_of(_: Any, bits: Any) -> Any:
    """The float with these bits, an integer of its width."""
    kind = types.float32 if bits == types.int32 else types.float64
    return kind(bits), _bitcast


def _bitcast(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


@emitted
def fused(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c of floats of one type, rounded once: as two steps where the product is exact."""
    return a(a, a, a), _llvm_function("llvm.fma", 3)


@emitted
def truncated(_: Any, number: Any) -> Any:
    """The integer next to a float64 towards 0: one instruction, which numba's own is not."""
    return number(number), _llvm_function("llvm.trunc", 1)


@emitted
def with_sign(_: Any, number: Any, sign: Any) -> Any:
    """A float64 with the sign of another."""
    return number(number, number), _llvm_function("llvm.copysign", 2)


def _llvm_function(name: str, count: int) -> Callable[..., Any]:
    """The code of a function of LLVM that takes `count` floats and returns one, of one type."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        function = builder.module.declare_intrinsic(
            name, [kind], ir.FunctionType(kind, [kind] * count)
        )
        return builder.call(function, arguments)

    return code


@inlined(
    types.void(LANES, repeat_type(ROW, 4), repeat_type(types.float64, 4)),
    types.void(SINGLE_LANES, repeat_type(SINGLE_ROW, 4), repeat_type(types.float32, 4)),
)
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


@inlined(
    types.void(LANES, TABLE, ROW, types.int64, types.int64),
    types.void(SINGLE_LANES, read_only(types.float32, 2), SINGLE_ROW, types.int64, types.int64),
)
def raise_greatest(greatest: Any, rows: Any, powers: Any, begin: int, end: int) -> None:
    """Raises the greatest exponents to those of products `begin` to `end`, as powers of 2."""
    k = begin
    while k + 4 <= end:
        four = powers[k], powers[k + 1], powers[k + 2], powers[k + 3]
        _raise_4(greatest, (rows[k], rows[k + 1], rows[k + 2], rows[k + 3]), four)
        k += 4
    while k < end:
        row, power = rows[k], powers[k]
        for i in range(greatest.size):
            product = power * row[i]
            greatest[i] = product if product > greatest[i] else greatest[i]
        k += 1


@inlined(types.float64(types.float64, types.float64))
def power_of(number: float, least: float) -> float:
    """2 to the exponent of a number, at least `least` and at most a huge one."""
    power = float_of(bits_of(number) & _EXPONENT)
    power = power if power > least else least
    return power if power < _HUGE else _HUGE


@inlined(types.float64(types.float64, FORMAT))
def nearest(number: float, form: Any) -> float:
    """Rounds to nearest, ties to even."""
    big = power_of(number, form[2]) * form[0]
    return (number + big) - big


@inlined(types.float64(types.float64, FORMAT))
def down(number: float, form: Any) -> float:
    """Rounds down."""
    power = power_of(number, form[2])
    big = power * form[0]
    result = (number + big) - big
    return result - power * form[1] if result > number else result


@inlined(types.float64(types.float64, FORMAT))
def towards_0(number: float, form: Any) -> float:
    """Rounds towards 0."""
    return with_sign(down(abs(number), form), number)


@inlined(types.float64(types.float64, FORMAT, types.uint64))
def by_draw(number: float, form: Any, words: Any) -> float:
    """Rounds away from 0 if a draw, hashed from `words`, is below the part that is dropped."""
    words = (words ^ (words >> _SHIFT_1)) * _FACTOR_1
    words = (words ^ (words >> _SHIFT_2)) * _FACTOR_2
    words = (words ^ (words >> _LAST_SHIFT)) >> _UNUSED
    size = abs(number)
    unit = power_of(size, form[2]) * form[1]
    result = down(size, form)
    up = size - result >= (np.float64(words) + 1.0) * (unit * _DRAW_UNIT)
    return with_sign(result + unit if up else result, number)


@inlined(types.float64(types.float64, types.float64))
def odd_sum(a: float, b: float) -> float:
    """a + b, rounded to odd: a second rounding, to 51 bits or fewer, is exact."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = bits_of(total)
    inexact = ((error > 0) | (error < 0)) & ((bits & 1) == 0)
    beside = bits + (1 if (error > 0) == (total > 0) else -1)
    return float_of(beside if inexact else bits)


@inlined(types.boolean(types.float64, FORMAT))
def is_outside(number: float, form: Any) -> bool:
    """Whether a rounded number is beyond the largest."""
    return abs(number) > form[4]


@inlined(types.float64(types.float64, FORMAT))
def limited(number: float, form: Any) -> float:
    """A rounded number within the range; 0 where it is too small; never -0."""
    size = abs(number)
    kept = number if size >= form[3] else 0.0 * size
    return (with_sign(form[5], number) if size > form[4] else kept) + 0.0


@entry(lambda values, form, has_negative_zero, out: values.size == out.size,
    types.void(read_only(types.float32), FORMAT, types.boolean, vector_type(types.float32))
)  # fmt: skip
def to_nearest(values: Any, form: Any, has_negative_zero: bool, out: Any) -> None:
    """Writes each of `values` in a format; 0 is +0 unless the format has a negative one."""
    for i in range(values.size):
        number = float(values[i])
        result = limited(nearest(number, form), form)
        is_signed = has_negative_zero | (result != 0)
        out[i] = np.float32(with_sign(result, number if is_signed else 1.0))
