"""Functions of float32, and softmax, normalisations and sums of rows, in onnxruntime's order.

Functions are polynomials with fused multiply-adds, as MLAS evaluates them, the library of
onnxruntime's kernels. Source of constants and steps: its `compute.cpp`, `erf.cpp`, `tanh.cpp`,
`logistic.cpp`. Two values are compared as the processor's MIN and MAX do it: where one is NaN, the
result is the second. Each loop is free of branches, so that it runs in lanes. Compared with
onnxruntime 1.31.1 on AVX-512, all 2^32 numbers have equal bits (one NaN is like another); on AVX2,
a sample of 2^20.

Source of rows: MLAS's `TransKernelAvx512F.S`, `TransKernelFma3.S`, `layernorm_kernel_avx2.cpp`, and
onnxruntime's `layer_norm_impl.cc`; of sums, Eigen's reductions. Widths of vectors are arguments, so
that one machine replays another.
"""

import math
from typing import Any

import numpy as np

from tracer.accumulators.floats.kernels.lanes import (
    SINGLE_LANES,
    SINGLE_ROW,
    are_alike,
    bits_of,
    float_of,
    fused,
)
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    free,
    inlined,
    new_doubles,
    new_floats,
    read_only,
    repeat_type,
    tuple_type,
)

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


VECTORS, WELFORD, MOMENTS = range(3)
"""Ways to mean and deviation: centred, in vectors; Welford's; sums of numbers and squares."""
_TABLE, _OUT = read_only(types.float32, 2), types.Array(types.float32, 2, "C")
_LOWEST, _ZERO, _ONE = np.finfo(np.float32).min, np.float32(0), np.float32(1)
_PAIR = repeat_type(types.float32, 2)
_LANES = 4
"""Elements of a vector of SSE2; two vectors add in turn."""


@inlined(types.float32(SINGLE_LANES))
def _lanes_sum(lanes: Any) -> Any:
    """The sum of 8 or 16 lanes: halves, then neighbours, as VHADDPS adds them."""
    for i in range(lanes.size - 8):
        lanes[i] += lanes[i + 8]
    low = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
    return ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])) + low


@inlined(_PAIR(SINGLE_ROW, types.boolean, types.float32, SINGLE_LANES))
def _powers(x: Any, is_wide: bool, least: Any, powers: Any) -> Any:
    """Writes exp of a row less its largest number; returns that number and the sum of all.

    The number is at least `least`.
    """
    lanes = new_floats(16 if is_wide else 8)
    largest = least
    for i in range(x.size):
        largest = largest if largest > x[i] else x[i]
    if is_wide:
        for i in range(x.size):
            powers[i] = exp_scaled(x[i] - largest)
    else:
        for i in range(x.size):
            powers[i] = exp_of_negative(x[i] - largest)
    for first in range(0, x.size, lanes.size):
        for i in range(min(lanes.size, x.size - first)):
            lanes[i] += powers[first + i]
    total = _lanes_sum(lanes)
    free(lanes)
    return largest, total


@entry(lambda values, is_wide, is_log, out: values.shape == out.shape,
    types.void(_TABLE, types.boolean, types.boolean, _OUT))  # fmt: skip
def softmax(values: Any, is_wide: bool, is_log: bool, out: Any) -> None:
    """Writes softmax, or its logarithm, of each row of `values` (N, D).

    `is_wide` tells 16 lanes and the exp of AVX-512 from 8 lanes and that of AVX2.
    """
    for row in range(values.shape[0]):
        x, powers = values[row], out[row]
        largest, total = _powers(x, is_wide, _LOWEST, powers)
        if is_log:
            logarithm = types.float32(math.log(total))
            for i in range(x.size):
                powers[i] = (x[i] - largest) - logarithm
        else:
            inverse = _ONE / total
            for i in range(x.size):
                powers[i] *= inverse


def _fits_sums(values: Any, is_wide: bool, largest: Any, out: Any, totals: Any) -> bool:
    return bool(values.shape == out.shape and totals.shape == largest.shape == values.shape[:1])


@entry(_fits_sums, types.void(_TABLE, types.boolean, SINGLE_LANES, _OUT, SINGLE_LANES))
def exponentials(values: Any, is_wide: bool, largest: Any, out: Any, totals: Any) -> None:
    """Writes what a softmax divides, and what it divides by, of each row of `values` (N, D).

    `largest` (N) are the largest numbers so far, which those of the rows may replace.
    """
    for row in range(values.shape[0]):
        largest[row], totals[row] = _powers(values[row], is_wide, largest[row], out[row])


@inlined(types.float32(SINGLE_ROW))
def _mean(x: Any) -> Any:
    """The mean by 4 lanes of float64."""
    lanes, end = new_doubles(4), x.size // 4 * 4
    for first in range(0, end, 4):
        for i in range(4):
            lanes[i] += np.float64(x[first + i])
    total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    free(lanes)
    for i in range(end, x.size):
        total += np.float64(x[i])
    return types.float32(total / np.float64(x.size))


@inlined(types.float32(SINGLE_ROW, types.float32))
def _squares(x: Any, mean: Any) -> Any:
    """The sum of squares of what deviates from a mean, in 8 lanes with fused multiply-add.

    Of the rest, the first 4 are multiplied in a vector and then added, if there are 4.
    """
    lanes, end = new_floats(8), x.size // 8 * 8
    for first in range(0, end, 8):
        for i in range(8):
            part = x[first + i] - mean
            lanes[i] = fused(part, part, lanes[i])
    for i in range(4):
        lanes[i] += lanes[i + 4]
    total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    free(lanes)
    alone = end + 4 if x.size - end >= 4 else end
    for i in range(end, x.size):
        part = x[i] - mean
        total = fused(part, part, total) if i >= alone else total + part * part
    return total


@inlined(_PAIR(SINGLE_ROW, types.boolean))
def _moments(x: Any, is_centred: bool) -> Any:
    """The mean and the mean of squares, less the square of the mean, one number after another."""
    total = squares = _ZERO
    for i in range(x.size):
        total += x[i]
        squares += x[i] * x[i]
    mean, squares = total / types.float32(x.size), squares / types.float32(x.size)
    return mean, squares - mean * mean if is_centred else squares


@inlined(_PAIR(SINGLE_ROW))
def _welford(x: Any) -> Any:
    """Mean and variance by Welford's updates."""
    mean = squares = _ZERO
    for i in range(x.size):
        part = x[i] - mean
        mean += part / types.float32(i + 1)
        squares += part * (x[i] - mean)
    return mean, squares / types.float32(x.size)


def _fits(values: Any, scale: Any, bias: Any, settings: Any, out: Any, statistics: Any) -> bool:
    width = values.shape[1]
    return (
        values.shape == out.shape and len(scale) == width and len(bias) in (0, width) and width > 0
        and statistics.shape == (2, len(values))
    )  # fmt: skip


_SETTINGS = tuple_type(types.int64, types.boolean, types.float32)


@entry(_fits, types.void(_TABLE, SINGLE_ROW, SINGLE_ROW, _SETTINGS, _OUT, _OUT))
def normalize(values: Any, scale: Any, bias: Any, settings: Any, out: Any, statistics: Any) -> None:
    """Writes normalised rows of `values` (N, D), and their means and inverse deviations (2, N).

    `settings` are the way, whether rows are centred, and epsilon; `bias` may be empty.
    """
    way, is_centred, epsilon = settings
    for row in range(values.shape[0]):
        x, y, mean = values[row], out[row], _ZERO
        if way == VECTORS:
            mean = _mean(x) if is_centred else _ZERO
            variance = _squares(x, mean) / types.float32(x.size)
        elif way == WELFORD and is_centred:
            mean, variance = _welford(x)
        else:
            mean, variance = _moments(x, is_centred)
        deviation = types.float32(math.sqrt(variance + epsilon))
        inverse = _ONE / deviation
        statistics[0, row], statistics[1, row] = mean, inverse
        for i in range(x.size):
            part = x[i] - mean if is_centred else x[i]
            part = part * inverse if way == VECTORS else part / deviation
            if bias.size == 0:
                y[i] = part * scale[i]
            elif way == VECTORS:
                y[i] = fused(part, scale[i], bias[i])
            else:
                y[i] = part * scale[i] + bias[i]


def _fits_row_sums(values: Any, is_set: bool, out: Any) -> bool:
    return bool(values.shape[1] > 0 and out.shape == values.shape[:1])


@inlined(types.float32(SINGLE_ROW, types.int64))
def _in_lanes(x: Any, start: int) -> Any:
    """The sum of a row in vectors from `start` on: what is outside is added last."""
    size = (x.size - start) // _LANES * _LANES
    lanes = new_floats(2 * _LANES)
    width = min(size, 2 * _LANES)
    for first in range(0, width, _LANES):
        for i in range(_LANES):
            lanes[first + i] = x[start + first + i]
    pairs = size // (2 * _LANES) * (2 * _LANES)
    for first in range(2 * _LANES, pairs, 2 * _LANES):
        for i in range(2 * _LANES):
            lanes[i] += x[start + first + i]
    if size > _LANES:
        for i in range(_LANES):
            lanes[i] += lanes[_LANES + i]
        if size > pairs:
            for i in range(_LANES):
                lanes[i] += x[start + pairs + i]
    total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    free(lanes)
    for i in range(start):
        total += x[i]
    for i in range(start + size, x.size):
        total += x[i]
    return total


@entry(_fits_row_sums, types.void(_TABLE, types.boolean, SINGLE_LANES))
def in_lanes(values: Any, is_aligned: bool, out: Any) -> None:
    """Writes the sum of each row of `values` (N, W) as Eigen adds it.

    With `is_aligned` vectors begin where an address is a multiple of 16 bytes, as that of the first
    row is; else at the first number. Rows that have no whole vector are added in order.
    """
    width = values.shape[1]
    for row in range(values.shape[0]):
        start = (-row * width) % _LANES if is_aligned else 0
        x = values[row]
        if start + _LANES > width:
            total = x[0]
            for i in range(1, width):
                total += x[i]
            out[row] = total
        else:
            out[row] = _in_lanes(x, start)


@entry(_fits_row_sums, types.void(_TABLE, types.boolean, SINGLE_LANES))
def in_order(values: Any, from_zero: bool, out: Any) -> None:
    """Writes the sum of each row of `values` (N, W): from 0, or from the first number."""
    for row in range(values.shape[0]):
        x = values[row]
        total = x[0] + np.float32(0) if from_zero else x[0]
        for i in range(1, x.size):
            total += x[i]
        out[row] = total
