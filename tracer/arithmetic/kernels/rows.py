"""Softmax, normalisations and sums of rows of float32, in the order in which onnxruntime adds.

Source: MLAS's `TransKernelAvx512F.S`, `TransKernelFma3.S`, `layernorm_kernel_avx2.cpp`, and
onnxruntime's `layer_norm_impl.cc`; of sums, Eigen's reductions. Widths of vectors are arguments, so
that one machine replays another.
"""

import math
from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.lanes import SINGLE_LANES, SINGLE_ROW, fused
from tracer.accumulators.kernels.array_types import (
    read_only,
    repeat_type,
    tuple_type,
)
from tracer.arithmetic.kernels.elementary import exp_of_negative, exp_scaled
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels.machine_code import inlined

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
    lanes = np.zeros(16 if is_wide else 8, np.float32)
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
    return largest, _lanes_sum(lanes)


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
    lanes, end = np.zeros(4), x.size // 4 * 4
    for first in range(0, end, 4):
        for i in range(4):
            lanes[i] += np.float64(x[first + i])
    total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    for i in range(end, x.size):
        total += np.float64(x[i])
    return types.float32(total / np.float64(x.size))


@inlined(types.float32(SINGLE_ROW, types.float32))
def _squares(x: Any, mean: Any) -> Any:
    """The sum of squares of what deviates from a mean, in 8 lanes with fused multiply-add.

    Of the rest, the first 4 are multiplied in a vector and then added, if there are 4.
    """
    lanes, end = np.zeros(8, np.float32), x.size // 8 * 8
    for first in range(0, end, 8):
        for i in range(8):
            part = x[first + i] - mean
            lanes[i] = fused(part, part, lanes[i])
    for i in range(4):
        lanes[i] += lanes[i + 4]
    total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
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
    lanes = np.zeros(2 * _LANES, np.float32)
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
