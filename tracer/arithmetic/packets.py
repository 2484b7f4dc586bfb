"""Functions of float32 as Eigen computes them in lanes of SSE2, which multiply and then add.

The parts of onnxruntime that are not MLAS use Eigen, compiled for any x86-64 processor: without
fused multiply-add, so that numpy's arithmetic has the same bits. Source of polynomials and steps:
`GenericPacketMathFunctions.h` of Eigen, 2025.

Compared with onnxruntime 1.31.1: `log`, and `exp` below 0 by Elu, of all 2^32 numbers; others of
2^20.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracer.support.types import Array

_F = np.float32
_NAN = np.array(-1, np.int32).view(_F)[()]
"""NaN as a comparison's mask makes it."""
_LN_2, _PI = _F(np.log(2)), _F(np.pi)
_HALF_PI = _F(np.pi / 2)
_QUARTER_TURNS = _F(0.63661975)
_TURN_PARTS = (-1.5703125, -0.00048398972, 1.6286504e-07, 5.5644316e-11)
"""Minus pi/2 in parts, the first of which are exact in a product."""
_ROUND = _F(1.5 * 2**23)
_SINE = (-0.0001959234, 0.008332687, -0.16666663)
_COSINE = (2.4372266e-05, -0.001388652, 0.04166662, -0.5, 1.0)
_TWO_OVER_PI = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E4100000
"""Bits of 2/pi."""
_EXP = (0.0013744964, 0.008368945, 0.041669652, 0.16666518, 0.49999988)
_LOG_TOP = (0.18256296, 1.0, 1.0)
_LOG_BOTTOM = (0.049616247, 0.5992325, 1.5, 1.0)
_LOG2 = (
    0.09701083, -0.16896486, 0.17200837, -0.17892273, 0.20505345, -0.24046677, 0.28857553,
    -0.36067414, 0.4808979,
)  # fmt: skip
_LOG2_PAIRS = [
    (_F(number), _F(number - float(_F(number))))
    for number in (1.4426950417421103, -0.72134751588268664)
]
"""Its first factors, each as a sum of two float32."""
_ASIN = (0.050883885, 0.039513987, 0.0755022, 0.16664918, 1.0000001)
_ACOS = (0.002364232, -0.011368644, 0.027178435, -0.048969544, 0.08880409, -0.2145912, 1.5707964)
_ATAN_TOP = (0.11202698, 0.7296696, 0.8109951)
_ATAN_BOTTOM = (0.010091711, 0.2831856, 1.0, 0.8109951)


def _polynomial(x: Array, factors: Sequence[float]) -> Array:
    """The polynomial with these factors, the one of the highest power first."""
    total: Any = _F(factors[0])
    for factor in factors[1:]:
        total = total * x + _F(factor)
    return np.asarray(total)


def _scaled(x: Array, exponents: Array) -> Array:
    """`x` times 2 to integers between -278 and 278, in four products."""
    quarters = exponents.astype(np.int32) >> 2
    rest = exponents.astype(np.int32) - 3 * quarters
    power, last = (((bits + 127) << 23).view(_F) for bits in (quarters, rest))
    return x * power * power * power * last


def exp(x: Array) -> Array:
    """Returns exp of float32 numbers: 2 to an integer, times a polynomial of what is left."""
    limited = np.where(x > _F(88.723), _F(88.723), x)
    count = np.floor(limited * _F(1.442695) + _F(0.5))
    rest = count * _F(0.00021219444) + (count * _F(-0.6933594) + limited)
    square, factors = rest * rest, tuple(map(_F, _EXP))
    even = square * (square * factors[0] + factors[2]) + factors[4]
    odd = square * factors[1] + factors[3]
    result = square * (rest * odd + even) + (rest + _F(1))
    scaled = _scaled(result, np.nan_to_num(np.clip(count, -278, 278)))
    return np.where(x < _F(-104), _F(0), np.where(x > scaled, x, scaled))


def log(x: Array) -> Array:
    """Returns the natural logarithm of float32 numbers: a quotient of polynomials."""
    mantissa, exponent = np.frexp(x)
    is_low = mantissa < _F(0.70710677)
    count = (exponent - is_low).astype(_F)
    part = (mantissa - _F(1)) + np.where(is_low, mantissa, _F(0))
    quotient = part * _polynomial(part, _LOG_TOP) / _polynomial(part, _LOG_BOTTOM)
    result = np.where(x == np.inf, x, count * _LN_2 + quotient)
    return np.where(x == 0, _F(-np.inf), np.where(x >= 0, result, _NAN))


def log1p(x: Array) -> Array:
    """Returns log(1 + x) of float32 numbers, mended by the part of `x` that 1 + x has lost."""
    sum_1 = x + _F(1)
    result = log(sum_1)
    mended = x * (result / (sum_1 - _F(1)))
    return np.where((sum_1 == 1) | (sum_1 == result), x, mended)


def power(x: Array, exponent: np.float32) -> Array:
    """Returns float32 numbers to a power that is no integer: 2^(y log2(x)) of positive ones.

    The logarithm and its product are sums of two float32, the second the rounding of the first.
    """
    mantissa, count = np.frexp(x)
    is_low = mantissa < _F(0.70710677)
    mantissa = np.where(is_low, _F(2) * mantissa, mantissa)
    whole = (count - is_low).astype(_F)
    part = mantissa - _F(1)
    total = _pair_sum(_LOG2_PAIRS[1], _product(part, _polynomial(part, _LOG2)))
    total = _pair_sum(_LOG2_PAIRS[0], _pair_product(total, part))
    logarithm = _pair_product(total, part)
    high, low = _pair_sum(_product(whole, exponent), _pair_product(logarithm, exponent))
    count = np.rint(high)
    rest = (high - count) + low
    moved = np.rint(rest)
    power_high, power_low = _product(rest - moved, _LN_2)
    result = _scaled(exp(power_high) * (_F(1) + power_low), count + moved)
    return np.where((x > 0) & np.isfinite(x), result, np.power(x, exponent))


def _product(x: Array, y: Any) -> tuple[Array, Array]:
    """The product of two float32 and its rounding error."""
    exact = np.multiply(x, y, dtype=np.float64)
    high = exact.astype(_F)
    return high, (exact - high).astype(_F)


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The sum of two float32, the larger first, and its rounding error."""
    high = x + y
    return high, y - (high - x)


def _pair_sum(x: Any, y: tuple[Array, Array]) -> tuple[Array, Array]:
    high, low = _sum(x[0], y[0])
    return _sum(high, (y[1] + low) + x[1])


def _pair_product(x: tuple[Array, Array], y: Any) -> tuple[Array, Array]:
    high, low = _product(x[0], y)
    total, rest = _sum(high, x[1] * y)
    return _sum(total, rest + low)


def sin(x: Array) -> Array:
    """Returns the sine of float32 numbers."""
    quarters, sine, cosine = _sine_and_cosine(x, 25966)
    sign = x.view(np.int32) ^ (quarters << 30)
    return _with_sign_flipped(np.where(quarters & 1, cosine, sine), sign)


def cos(x: Array) -> Array:
    """Returns the cosine of float32 numbers."""
    quarters, sine, cosine = _sine_and_cosine(x, 18838)
    return _with_sign_flipped(np.where(quarters & 1, sine, cosine), (quarters + 1) << 30)


def asin(x: Array) -> Array:
    """Returns the arc sine of float32 numbers."""
    size = np.abs(x)
    is_large = size > _F(0.5)
    part = np.where(is_large, np.sqrt(_F(0.5) - _F(0.5) * size), size)
    result = _polynomial(part * part, _ASIN) * part
    result = np.where(is_large, _HALF_PI - _F(2) * result, result)
    return np.where(size > 1, _NAN, _with_sign_flipped(result, x.view(np.int32)))


def acos(x: Array) -> Array:
    """Returns the arc cosine of float32 numbers."""
    size, square = np.abs(x), x * x
    p6, p5, p4, p3, p2, p1, p0 = map(_F, _ACOS)
    even = ((p6 * square + p4) * square + p2) * square + p0
    odd = (p5 * square + p3) * square + p1
    result = np.sqrt(_F(1) - size) * (odd * size + even)
    return np.asarray(np.where(np.signbit(x), _PI - result, result))


def atan(x: Array) -> Array:
    """Returns the arc tangent of float32 numbers."""
    size = np.abs(x)
    is_large = size > 1
    part = np.where(is_large, _F(1) / size, size)
    square = part * part
    result = part * (_polynomial(square, _ATAN_TOP) / _polynomial(square, _ATAN_BOTTOM))
    result = np.where(is_large, _HALF_PI - result, result)
    return _with_sign_flipped(result, x.view(np.int32))


def _with_sign_flipped(x: Array, sign: Array) -> Array:
    """`x` with its sign flipped where the highest bit of `sign` is set."""
    return (x.view(np.int32) ^ (sign & np.int32(-(2**31)))).view(_F)


def _sine_and_cosine(x: Array, huge: float) -> tuple[Array, Array, Array]:
    """The quarter turns of `x`, and sine and cosine of the rest.

    From a size of `huge` on, the product with 2/pi is taken from its bits.
    """
    size = np.abs(x)
    rounded = size * _QUARTER_TURNS + _ROUND
    quarters, rest = rounded.view(np.int32), size
    for part in _TURN_PARTS:
        rest = (rounded - _ROUND) * _F(part) + rest
    is_huge = (size >= huge) & np.isfinite(size)
    if is_huge.any():
        quarters, rest = quarters.copy(), rest.copy()
        quarters[is_huge], rest[is_huge] = _huge_reduced(size[is_huge])
    square = rest * rest
    sine = _polynomial(square, _SINE) * square * rest + rest
    return quarters, sine, _polynomial(square, _COSINE)


def _huge_reduced(size: Array) -> tuple[Array, Array]:
    """Quarter turns, modulo 4, and the rest, by a product with the bits of 2/pi that matter."""
    bits = size.view(np.uint32)
    place = (bits >> 23).astype(np.int32) - 118
    mantissa = ((bits & 0x7FFFFF) | 0x800000) << (place & 7).astype(np.uint32)
    words = [(_TWO_OVER_PI >> 8 * (25 - i)) & 0xFFFFFFFF for i in range(26)]
    table = np.array(words, np.uint32)
    first, second, third = (table[(place >> 3) + step] for step in (-1, 3, 7))
    wide = mantissa.astype(np.uint64)
    product = wide * second + ((wide * third) >> np.uint64(32))
    product += (mantissa * first).astype(np.uint64) << np.uint64(32)
    quarters = (product + np.uint64(1 << 61)) >> np.uint64(62)
    rest = (product - (quarters << np.uint64(62))).view(np.int64)
    return quarters.astype(np.int32), (rest * 3.4061215800865545e-19).astype(_F)
