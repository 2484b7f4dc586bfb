"""Functions of float32 that the C library of this machine computes, one number after another.

onnxruntime calls the library where it has no vectors: for whole operators, and for what is left
over at the end of a buffer.
"""

import math
from typing import Any

from numba import types

from tracer.accumulators.floats.kernels.lanes import SINGLE_LANES, SINGLE_ROW, are_alike, inlined
from tracer.accumulators.kernels.array_types import kernel
from tracer.interpreter.compiled_code import entry

NAMES = (
    "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "log1p",
)  # fmt: skip
"""Functions by number."""


@inlined(types.float32(types.int64, types.float32))
def _early(number: int, x: Any) -> Any:
    """One of the first 8 functions."""
    if number == 0:
        return math.exp(x)
    if number == 1:
        return math.log(x)
    if number == 2:
        return math.sin(x)
    if number == 3:
        return math.cos(x)
    if number == 4:
        return math.tan(x)
    if number == 5:
        return math.asin(x)
    return math.acos(x) if number == 6 else math.atan(x)


@inlined(types.float32(types.int64, types.float32))
def _late(number: int, x: Any) -> Any:
    """One of the others."""
    if number == 8:
        return math.sinh(x)
    if number == 9:
        return math.cosh(x)
    if number == 10:
        return math.tanh(x)
    if number == 11:
        return math.asinh(x)
    if number == 12:
        return math.acosh(x)
    return math.atanh(x) if number == 13 else math.log1p(x)


@entry(lambda number, values, out: 0 <= number < len(NAMES) and are_alike(values, out))
@kernel(types.void(types.int64, SINGLE_ROW, SINGLE_LANES))
def apply(number: int, values: Any, out: Any) -> None:
    """Writes the function with this number of each of `values`."""
    for i in range(values.size):
        out[i] = _early(number, values[i]) if number < 8 else _late(number, values[i])


@entry(are_alike)
@kernel(types.void(SINGLE_ROW, SINGLE_ROW, SINGLE_LANES))
def power(bases: Any, exponents: Any, out: Any) -> None:
    """Writes each of `bases` to the power beside it."""
    for i in range(bases.size):
        out[i] = math.pow(bases[i], exponents[i])
