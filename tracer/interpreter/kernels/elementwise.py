"""Element-wise work on flat float32 tensors: affine, Relu, Add to Div, rational, quantisation.

Loops run from 0 over slices, or over unsigned indices: numba handles an index that may be negative
in a way that LLVM does not vectorise.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.interpreter.compiled_code import READ, WRITTEN, entry, task
from tracer.interpreter.kernels.machine_code import helper
from tracer.interpreter.kernels.task_arguments import floats

_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")
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
    *[types.void(_READ, _FLOAT, _FLOAT, _FLOAT, _FLOAT, types.Array(kind, 1, "C"))
     for kind in (*_BYTES, types.int16)])  # fmt: skip
def quantize(x: Any, scale: Any, zero: Any, low: Any, high: Any, out: Any) -> None:
    """round(x / scale) + zero, half to even, clipped to [low, high], which lie within 2^21.

    The bounds are integers, so clipping first gives the same. NaN becomes what it converts to.
    """
    least, most = _FLOAT(low - zero), _FLOAT(high - zero)
    for i in range(x.size):
        ratio = _FLOAT(x[i] / scale)
        ratio = least if ratio < least else ratio
        ratio = most if ratio > most else ratio
        rounded = _FLOAT(_FLOAT(ratio + _MAGIC) - _MAGIC)
        out[i] = np.int32(_FLOAT(rounded + zero))


@entry(lambda x, scale, zero, out: x.size == out.size,
    *[types.void(types.Array(kind, 1, "C", readonly=True), _FLOAT, _FLOAT,
                types.Array(_FLOAT, 1, "C")) for kind in _BYTES])  # fmt: skip
def dequantize(x: Any, scale: Any, zero: Any, out: Any) -> None:
    """(x - zero) * scale."""
    for i in range(x.size):
        out[i] = _FLOAT(_FLOAT(_FLOAT(x[i]) - zero) * scale)
