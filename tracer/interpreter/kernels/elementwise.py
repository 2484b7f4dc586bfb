"""Work on elements and rows: affine, Relu, Add to Div, rational, quantisation, softmax, tables.

Loops run from 0 over slices, or over unsigned indices: numba handles an index that may be negative
in a way that LLVM does not vectorise.

Sums are float64, in a fixed order that LLVM chooses (`reassoc`), which lets it vectorise them.
"""

from typing import Any

import numpy as np

from tracer.interpreter.compiled_code import READ, WRITTEN, entry, task
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    array_at,
    floats,
    free,
    helper,
    new_floats,
    read_only,
    start_of,
    vector_type,
)

_READ, _WRITE = read_only(types.float32), vector_type(types.float32)
_FLOAT = types.float32
_BYTES = (types.uint8, types.int8)

_MAGIC = np.float32(3 << 22)
"""Adding and subtracting it rounds a float32 below 2^22 to an integer."""
ADD, SUBTRACT, MULTIPLY, DIVIDE = range(4)


@task(READ, READ, READ, WRITTEN, fits=lambda _, x, scale, shift, out, planes, each, size: (
    x.size == out.size == planes * size and scale.size == shift.size > 0 < each
))  # fmt: skip
def affine(words: Any, block: int) -> None:
    """Applies scale and shift of the channel to some planes.

    Arguments: x, scale, shift, out; planes in total and per block, elements of a plane.
    """
    x, scale, shift, out = floats(words, 0), floats(words, 2), floats(words, 4), floats(words, 6)
    planes, each, size = words[8], words[9], words[10]
    for plane in range(block * each, min((block + 1) * each, planes)):
        factor, term = scale[plane % scale.size], shift[plane % scale.size]
        source = x[plane * size : (plane + 1) * size]
        target = out[plane * size : (plane + 1) * size]
        for i in range(size):
            target[i] = source[i] * factor + term


@task(READ, WRITTEN, fits=lambda _, x, out, each: x.size == out.size and each > 0)
def relu(words: Any, block: int) -> None:
    """max(x, 0) of some elements; NaN stays. Arguments: x, out; elements of a block."""
    x, out, each = floats(words, 0), floats(words, 2), words[4]
    source = x[block * each : (block + 1) * each]
    target = out[block * each : (block + 1) * each]
    for i in range(source.size):
        value = source[i]
        target[i] = np.float32(0) if value < 0 else value


@helper(types.void(types.intp, _READ, _READ, _WRITE))
def _with_array(operation: int, a: Any, b: Any, out: Any) -> None:
    if operation == ADD:
        for i in range(out.size):
            out[i] = a[i] + b[i]
    elif operation == SUBTRACT:
        for i in range(out.size):
            out[i] = a[i] - b[i]
    elif operation == MULTIPLY:
        for i in range(out.size):
            out[i] = a[i] * b[i]
    else:
        for i in range(out.size):
            out[i] = a[i] / b[i]


@helper(types.void(types.intp, _READ, types.float32, _WRITE))
def _with_scalar(operation: int, a: Any, b: Any, out: Any) -> None:
    if operation == ADD:
        for i in range(out.size):
            out[i] = a[i] + b
    elif operation == SUBTRACT:
        for i in range(out.size):
            out[i] = a[i] - b
    elif operation == MULTIPLY:
        for i in range(out.size):
            out[i] = a[i] * b
    else:
        for i in range(out.size):
            out[i] = a[i] / b


def _repeats(_: int, a: Any, b: Any, out: Any, operation: int, each: int) -> bool:
    """Whether every block of `a` has a part of `b`, or whole repetitions of it."""
    if a.size != out.size or each < 1:
        return False
    if b.size > each:
        return bool(b.size == a.size)
    return b.size == 1 or bool(b.size and each % b.size == 0 == a.size % b.size)


@task(READ, READ, WRITTEN, fits=_repeats)
def binary(words: Any, block: int) -> None:
    """Combines some elements of `a` with `b`, which repeats.

    Arguments: a, b, out; operation, elements of a block, which holds whole repetitions of a `b`
    shorter than `a`.
    """
    operation, each = words[6], words[7]
    a = floats(words, 0)[block * each : (block + 1) * each]
    b, out = floats(words, 2), floats(words, 4)[block * each : (block + 1) * each]
    if b.size == 1:
        _with_scalar(operation, a, b[0], out)
    elif b.size > each:
        _with_array(operation, a, b[block * each : (block + 1) * each], out)
    else:
        for start in range(0, a.size, b.size):
            _with_array(operation, a[start : start + b.size], b, out[start : start + b.size])


@task(READ, READ, WRITTEN, fits=lambda _, x, coefficients, out, each: (
    x.size == out.size and coefficients.size == 14 and each > 0
))  # fmt: skip
def ratio(words: Any, block: int) -> None:
    """x P(x^2) / Q(x^2) of some elements, with x and the result clipped.

    Arguments: x, coefficients, out; elements of a block. The coefficients are six of P, six of Q,
    highest power first, then the bounds of |x| and of the result. NaN stays.
    """
    each = words[6]
    x = floats(words, 0)[block * each : (block + 1) * each]
    c, out = floats(words, 2), floats(words, 4)[block * each : (block + 1) * each]
    p0, p1, p2, p3, p4, p5 = c[0], c[1], c[2], c[3], c[4], c[5]
    q0, q1, q2, q3, q4, q5 = c[6], c[7], c[8], c[9], c[10], c[11]
    far, most = c[12], c[13]
    for i in range(x.size):
        near = min(max(x[i], -far), far)
        s = near * near
        top = ((((p0 * s + p1) * s + p2) * s + p3) * s + p4) * s + p5
        bottom = ((((q0 * s + q1) * s + q2) * s + q3) * s + q4) * s + q5
        out[i] = min(max(near * (top / bottom), -most), most)


@entry(lambda x, scale, zero, low, high, out: x.size == out.size,
    *[types.void(_READ, _FLOAT, _FLOAT, _FLOAT, _FLOAT, vector_type(kind))
     for kind in (*_BYTES, types.int16)])  # fmt: skip
def quantize(x: Any, scale: Any, zero: Any, low: Any, high: Any, out: Any) -> None:
    """round(x / scale) + zero, half to even, clipped to [low, high], which lie within 2^21.

    The bounds are integers, so clipping first gives the same. NaN becomes `low`.
    """
    least, most = _FLOAT(low - zero), _FLOAT(high - zero)
    for i in range(x.size):
        ratio = _FLOAT(x[i] / scale)
        ratio = ratio if ratio > least else least
        ratio = most if ratio > most else ratio
        rounded = _FLOAT(_FLOAT(ratio + _MAGIC) - _MAGIC)
        out[i] = np.int32(_FLOAT(rounded + zero))


@entry(lambda x, scale, zero, out: x.size == out.size,
    *[types.void(read_only(kind), _FLOAT, _FLOAT, _WRITE) for kind in _BYTES])  # fmt: skip
def dequantize(x: Any, scale: Any, zero: Any, out: Any) -> None:
    """(x - zero) * scale."""
    for i in range(x.size):
        out[i] = _FLOAT(_FLOAT(_FLOAT(x[i]) - zero) * scale)


_LANES = 16


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
    lanes = new_floats(_LANES)
    for row in range(block * each, min((block + 1) * each, x.size // size)):
        source, target = x[row * size : (row + 1) * size], out[row * size : (row + 1) * size]
        top = _largest(source, lanes)
        for i in range(size):
            target[i] = _exp(source[i] - top)
        total = np.float32(_sum(target))
        for i in range(size):
            target[i] /= total
    free(lanes)


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


_FLAT_BYTES = read_only(types.uint8)
_BYTE_TABLE = read_only(types.uint8, 2)


@entry(
    lambda table, x, out: len(table) == 256 and x.size == out.size and x.size % table.shape[1] == 0,
    types.void(_BYTE_TABLE, _FLAT_BYTES, vector_type(types.uint8)),
)
def by_column(table: Any, x: Any, out: Any) -> None:
    """Writes `table[x[i], i % width]`; `x` is whole rows of a table (256, width)."""
    width, entries = table.shape[1], array_at(start_of(table), table.size)
    if width == 1:
        for i in range(x.size):
            out[i] = entries[np.uintp(x[i])]
        return
    for row in range(0, x.size, width):
        for column in range(width):
            place = np.uintp(row + column)
            entry = np.uintp(x[place]) * np.uintp(width) + np.uintp(column)
            out[place] = entries[entry]


@entry(lambda table, x, other, out: table.shape == (256, 256) and x.size == other.size == out.size,
    types.void(_BYTE_TABLE, _FLAT_BYTES, _FLAT_BYTES, vector_type(types.uint8)))  # fmt: skip
def by_pair(table: Any, x: Any, other: Any, out: Any) -> None:
    """Writes `table[x[i], other[i]]`, with a table (256, 256)."""
    entries = array_at(start_of(table), table.size)
    for i in range(x.size):
        out[i] = entries[(np.uintp(x[i]) << np.uintp(8)) | np.uintp(other[i])]
