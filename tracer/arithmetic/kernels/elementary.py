"""Functions of float32 by polynomials with fused multiply-adds, as MLAS evaluates them.

MLAS is the library of onnxruntime's kernels. Source of constants and steps: its `compute.cpp`,
`erf.cpp`, `tanh.cpp`, `logistic.cpp`. Two values are compared as the processor's MIN and MAX do it:
where one is NaN, the result is the second. Each loop is free of branches, so that it runs in lanes.

Compared with onnxruntime 1.31.1 on AVX-512, all 2^32 numbers have equal bits (one NaN is like
another); on AVX2, a sample of 2^20.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.lanes import (
    SINGLE_LANES,
    SINGLE_ROW,
    are_alike,
    bits_of,
    float_of,
    fused,
)
from tracer.accumulators.kernels.array_types import repeat_type
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels.machine_code import inlined

_MAP = types.void(SINGLE_ROW, SINGLE_LANES)
_FLOAT = types.float32


def _floats(*numbers: float) -> tuple[Any, ...]:
    return tuple(map(np.float32, numbers))


_ZERO, _HALF, _ONE = _floats(0, 0.5, 1)
_ROUND = np.float32(1.5 * 2**23)
"""Added and subtracted again, it rounds to an integer, which is then in the low bits of the sum."""
_LOG2_E, _LN2_HIGH, _LN2_LOW = _floats(1.44269504088896341, -6.93145752e-1, -1.42860677e-6)
_LEAST = np.float32(-103.9720840454)
_LEAST_NORMAL = np.float32(-88.3762626647949)
"""Below it, the exponent of exp does not fit one factor."""
_EXP = _floats(
    float.fromhex("0x1.694000p-10"), float.fromhex("0x1.125edcp-7"), float.fromhex("0x1.555b5ap-5"),
    float.fromhex("0x1.555450p-3"), float.fromhex("0x1.fffff6p-2"), 1,
)  # fmt: skip
_ERF_EXP = _floats(1.38319808e-3, 8.37550033e-3, 4.16689515e-2, 1.66664466e-1, 4.99999851e-1, 1, 1)
_ERF_SMALL = _floats(
    -5.99104969e-4, 4.99339588e-3, -2.67667342e-2, 1.12818025e-1, -3.76124859e-1, 1.28379151e-1
)
_ERF_LARGE = _floats(
    1.72948930e-5, -3.83208680e-4, 3.88393435e-3, -2.42545605e-2, 1.06777847e-1, 6.34846687e-1,
    1.28717512e-1,
)  # fmt: skip
_ERF_SPLIT, _ERF_LIMIT = _floats(0.921875, 3.925)
_TANH_TOP = _floats(
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_BOTTOM = _floats(
    1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03
)
_TANH_LIMIT = np.float32(9)
_LOGISTIC_TOP = _floats(
    4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03,
    2.48287947061529e-01,
)  # fmt: skip
_LOGISTIC_BOTTOM = _floats(
    6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03,
    1.16817656904453e-01, 9.93151921023180e-01,
)  # fmt: skip
_LOGISTIC_LIMIT = np.float32(18)
_INFINITE = np.float32(np.inf)
_SIGN, _MAGNITUDE = np.int32(-(2**31)), np.int32(2**31 - 1)
_BIAS, _MANTISSA = np.int32(127), np.int32(23)
_ONE_BITS = np.int32(127 << 23)
_WIDE_BIAS, _WIDE_MANTISSA, _WIDE_LIMIT = np.int64(1023), np.int64(52), np.float32(1000)


@inlined(*[_FLOAT(_FLOAT, repeat_type(_FLOAT, count)) for count in (4, 5, 6, 7)])
def _polynomial(x: Any, factors: Any) -> Any:
    """The polynomial with these factors, the one of the highest power first."""
    total = factors[0]
    for i in range(1, len(factors)):
        total = fused(total, x, factors[i])
    return total


@inlined(_FLOAT(_FLOAT, _FLOAT))
def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, `b` where one is NaN."""
    return a if a > b else b


@inlined(_FLOAT(_FLOAT, _FLOAT))
def smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers, `b` where one is NaN."""
    return a if a < b else b


@inlined(_FLOAT(_FLOAT, _FLOAT))
def _times_power(number: Any, exponent: Any) -> Any:
    """A number times 2 to an integral exponent, rounded once, as VSCALEFPS does it.

    NaN with an infinite exponent, which exp of infinity has on its way, is infinite.
    """
    limited = smaller(larger(exponent, -_WIDE_LIMIT), _WIDE_LIMIT)
    power = float_of((np.int64(limited) + _WIDE_BIAS) << _WIDE_MANTISSA)
    result = _FLOAT(np.float64(number) * power)
    return exponent if (exponent == _INFINITE) & (number != number) else result


@inlined(repeat_type(_FLOAT, 2)(_FLOAT))
def _reduced(x: Any) -> Any:
    """The number of times that ln 2 goes into `x` (rounded, 1.5 * 2^23 added), and what is left."""
    biased = fused(_LOG2_E, x, _ROUND)
    count = biased - _ROUND
    return biased, fused(count, _LN2_LOW, fused(count, _LN2_HIGH, x))


@inlined(_FLOAT(_FLOAT))
def exp_scaled(x: Any) -> Any:
    """exp with VSCALEFPS, which has every exponent: the kernel for AVX-512.

    That for AVX2, which multiplies twice by a power of 2, has the same bits of all 2^32 numbers.
    """
    biased, rest = _reduced(larger(_LEAST, x))
    return _times_power(fused(_polynomial(rest, _EXP), rest, _ONE), biased - _ROUND)


@inlined(_FLOAT(_FLOAT))
def exp_of_negative(x: Any) -> Any:
    """exp of what is not above 0, for a softmax with AVX2: no result is subnormal."""
    biased, rest = _reduced(larger(_LEAST_NORMAL, x))
    power = float_of(np.int32(np.int32(bits_of(biased) << _MANTISSA) + _ONE_BITS))
    return fused(_polynomial(rest, _EXP), rest, _ONE) * power


@entry(are_alike, _MAP)
def exp(values: Any, out: Any) -> None:
    """Writes exp of each of `values`."""
    for i in range(values.size):
        out[i] = exp_scaled(values[i])


@entry(are_alike, _MAP)
def erf(values: Any, out: Any) -> None:
    """Writes the error function of each of `values`: a polynomial near 0, else 1 - exp(-r)."""
    for i in range(values.size):
        bits = bits_of(values[i])
        size = smaller(float_of(np.int32(bits & _MAGNITUDE)), _ERF_LIMIT)
        is_large = size >= _ERF_SPLIT
        square = size * size
        small = fused(_polynomial(square, _ERF_SMALL), size, size)
        large = size if is_large else _ZERO
        power = larger(-fused(_polynomial(large, _ERF_LARGE), large, large), _LEAST_NORMAL)
        biased, rest = _reduced(power)
        scale = float_of(np.int32((np.int32(biased - _ROUND) + _BIAS) << _MANTISSA))
        result = _ONE - _polynomial(rest, _ERF_EXP) * scale
        signed = float_of(np.int32(bits_of(result if is_large else small) | (bits & _SIGN)))
        out[i] = values[i] + values[i] if values[i] != values[i] else signed


@entry(are_alike, _MAP)
def tanh(values: Any, out: Any) -> None:
    """Writes the hyperbolic tangent of each of `values`, a quotient of polynomials."""
    for i in range(values.size):
        x = smaller(_TANH_LIMIT, larger(-_TANH_LIMIT, values[i]))
        square = x * x
        out[i] = (_polynomial(square, _TANH_TOP) * x) / _polynomial(square, _TANH_BOTTOM)


@entry(are_alike, _MAP)
def logistic(values: Any, out: Any) -> None:
    """Writes 1 / (1 + exp(-x)) of each of `values`, a quotient of polynomials plus a half."""
    for i in range(values.size):
        x = smaller(_LOGISTIC_LIMIT, larger(-_LOGISTIC_LIMIT, values[i]))
        square = x * x
        top = _polynomial(square, _LOGISTIC_TOP) * x
        out[i] = larger(_ZERO, top / _polynomial(square, _LOGISTIC_BOTTOM) + _HALF)


@entry(lambda x, y, z, out: len(x) == len(y) == len(z) == len(out),
    types.void(SINGLE_ROW, SINGLE_ROW, SINGLE_ROW, SINGLE_LANES))  # fmt: skip
def multiply_add(x: Any, y: Any, z: Any, out: Any) -> None:
    """Writes x y + z of each element, rounded once."""
    for i in range(x.size):
        out[i] = fused(x[i], y[i], z[i])
