"""Rounds a float64 to a format, as `floats.casting` defines it; in arithmetic that vectors have.

A number is rounded by adding, and subtracting again, 1.5 times the power of 2 whose float64 has the
wanted unit: the processor rounds to nearest, ties to even. A sum of 0 is +0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tracer.accumulators.floats.kernels import hashing
from tracer.accumulators.kernels.array_types import several

RNE, RZ, FLOOR, SR = range(4)
FORMAT = several(types.float64, 6)
"""As `kernel_formats.wide_format` makes it: 1.5 times 2^52 units of 1; the unit of 1; the least
exponent, as a power; numbers below this are 0; the largest number; what is beyond."""

_EXPONENT = np.int64(0x7FF0000000000000)
_HUGE = 2.0**400
"""More than any product: infinity is rounded as if it had this exponent, and stays."""
_SHIFT_1, _SHIFT_2 = (np.uint64(bits) for bits, _ in hashing.MIXERS)
_FACTOR_1, _FACTOR_2 = (np.uint64(factor) for _, factor in hashing.MIXERS)
_LAST_SHIFT, _UNUSED = np.uint64(hashing.LAST_SHIFT), np.uint64(64 - hashing.BITS)
_DRAW_UNIT = 2.0**-hashing.BITS


def inlined(signature: Any) -> Callable[[Any], Any]:
    """Compiles a function for this signature, as a part of the kernels that call it."""
    compiled: Any = njit([signature], nogil=True, cache=True, forceinline=True)
    return compiled


def _bits_of(_: Any, number: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), code


def _float_of(_: Any, bits: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), code


def _truncated(_: Any, number: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.trunc", [ir.DoubleType()])
        return builder.call(function, arguments)

    return types.float64(types.float64), code


def _with_sign(_: Any, number: Any, sign: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, (double, double))
        function = builder.module.declare_intrinsic("llvm.copysign", [double], kind)
        return builder.call(function, arguments)

    return types.float64(types.float64, types.float64), code


def _fused(_: Any, a: Any, b: Any, c: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, (double, double, double))
        function = builder.module.declare_intrinsic("llvm.fma", [double], kind)
        return builder.call(function, arguments)

    return types.float64(types.float64, types.float64, types.float64), code


bits_of: Any = intrinsic(_bits_of)
"""The bits of a float64, int64."""
float_of: Any = intrinsic(_float_of)
"""The float64 with these bits, int64."""
truncated: Any = intrinsic(_truncated)
"""The integer next to a float64 towards 0: one instruction, which numba's own is not."""
with_sign: Any = intrinsic(_with_sign)
"""A float64 with the sign of another."""
fused: Any = intrinsic(_fused)
"""a b + c, rounded once: the same as two steps where the product is exact."""


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
