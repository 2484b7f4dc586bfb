"""Softmax and layer normalisation of float32 rows.

Sums are float64, in a fixed order that LLVM chooses (`reassoc`), which lets it vectorise them.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.interpreter.compiled_code import READ, WRITTEN, task
from tracer.interpreter.kernels.machine_code import helper
from tracer.interpreter.kernels.task_arguments import floats

_LANES = 16
_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")


@helper(types.float32(types.float32))
def _exp(x: Any) -> Any:
    """exp of a float32 that is at most 0: 2^n e^r, after Cephes' expf (S. Moshier)."""
    near = max(x, np.float32(-104))  # 0 from there on; NaN stays
    n = np.floor(near * np.float32(1.44269504088896341) + np.float32(0.5))
    r = near - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4) * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    power = np.int32(n)  # in two steps, as 2^n may be too small for a normal number
    half = power >> np.int32(1)
    first = np.int32((half + np.int32(127)) << np.int32(23)).view(np.float32)
    second = np.int32((power - half + np.int32(127)) << np.int32(23)).view(np.float32)
    return (p * r * r + r + np.float32(1)) * first * second


@helper(types.float32(_READ, _WRITE))
def _largest(x: Any, lanes: Any) -> Any:
    """Returns the maximum of `x`; NaN may be ignored."""
    lanes[:] = x[0]
    full = x.size // _LANES * _LANES
    for i in range(0, full, _LANES):
        part = x[i : i + _LANES]
        for lane in range(_LANES):
            lanes[lane] = part[lane] if part[lane] > lanes[lane] else lanes[lane]
    top = x[0]
    for lane in range(_LANES):
        top = max(top, lanes[lane])
    for i in range(full, x.size):
        top = max(top, x[i])
    return top


@helper(types.float64(_READ), fastmath={"reassoc"})
def _sum(x: Any) -> Any:
    total = 0.0
    for i in range(x.size):
        total += np.float64(x[i])
    return total


@helper(types.float64(_READ, types.float32), fastmath={"reassoc"})
def _squares(x: Any, mean: Any) -> Any:
    """Returns the sum of squared differences from the mean."""
    total = 0.0
    for i in range(x.size):
        apart = np.float64(x[i] - mean)
        total += apart * apart
    return total


@task(READ, WRITTEN, fits=lambda _, x, out, size, each: (
    x.size == out.size and size > 0 < each and x.size % size == 0
))  # fmt: skip
def softmax(words: Any, block: int) -> None:
    """Softmax of some rows. Arguments: x, out; elements of a row, rows of a block."""
    x, out = floats(words, 0), floats(words, 2)
    size, each = words[4], words[5]
    lanes = np.empty(_LANES, np.float32)
    for row in range(block * each, min((block + 1) * each, x.size // size)):
        source, target = x[row * size : (row + 1) * size], out[row * size : (row + 1) * size]
        top = _largest(source, lanes)
        for i in range(size):
            target[i] = _exp(source[i] - top)
        total = np.float32(_sum(target))
        for i in range(size):
            target[i] /= total


@task(
    READ, READ, READ, READ, WRITTEN, WRITTEN, WRITTEN,
    fits=lambda _, x, scale, shift, epsilon, out, means, inverses, each: (
        x.size == out.size == means.size * scale.size
        and scale.size == shift.size > 0 < each
        and means.size == inverses.size
        and epsilon.size == 1
    ),
)  # fmt: skip
def normalize(words: Any, block: int) -> None:
    """Normalises some rows by mean and deviation; applies scale and shift element by element.

    Arguments: x, scale, shift, epsilon (one element), out, means and inverse deviations of the
    rows; rows of a block.
    """
    x, scale, shift, epsilon = (floats(words, 0), floats(words, 2), floats(words, 4),
                                floats(words, 6)[0])  # fmt: skip
    out, means, inverses, each = floats(words, 8), floats(words, 10), floats(words, 12), words[14]
    size = scale.size
    for row in range(block * each, min((block + 1) * each, means.size)):
        source, target = x[row * size : (row + 1) * size], out[row * size : (row + 1) * size]
        mean = np.float32(_sum(source) / size)
        inverse = np.float32(1 / np.sqrt(_squares(source, mean) / size + epsilon))
        for i in range(size):
            target[i] = (source[i] - mean) * inverse * scale[i] + shift[i]
        means[row], inverses[row] = mean, inverse
