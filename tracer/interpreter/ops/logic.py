"""Comparisons, boolean and bitwise operators, Where, IsNaN, IsInf."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric.elementwise import Compute, apply
from tracer.interpreter.ops.arithmetic import legacy_binary
from tracer.interpreter.ops.math import unary
from tracer.interpreter.registry import operator
from tracer.support.types import Array


def broadcast(compute: Compute, dtype: Any = None) -> Callable[[Array, Array], Array]:
    """Returns an operator with numpy's broadcasting and results of `dtype`."""

    def function(A: Array, B: Array) -> Array:
        return apply(compute, A, B, dtype=dtype)

    return function


for _name, _compute in {
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}.items():
    operator(_name, since=7)(broadcast(_compute, np.bool_))
    operator(_name, since=1)(legacy_binary(_compute, np.bool_))

operator("LessOrEqual", since=12)(broadcast(np.less_equal, np.bool_))
operator("GreaterOrEqual", since=12)(broadcast(np.greater_equal, np.bool_))
operator("Not")(unary(np.logical_not))
operator("BitwiseNot", since=18)(unary(np.invert))
operator("BitwiseAnd", since=18)(broadcast(np.bitwise_and))
operator("BitwiseOr", since=18)(broadcast(np.bitwise_or))
operator("BitwiseXor", since=18)(broadcast(np.bitwise_xor))


@operator("BitShift", since=11)
def bit_shift(X: Array, Y: Array, *, direction: str) -> Array:
    """X shifted by Y bits."""
    shifts = {"LEFT": np.left_shift, "RIGHT": np.right_shift}
    if direction not in shifts:
        raise ModelError(f"direction '{direction}' is neither LEFT nor RIGHT")
    return apply(shifts[direction], X, Y)


@operator("Where", since=9)
def where(condition: Array, X: Array, Y: Array) -> Array:
    """X where the condition holds, else Y."""

    def choose(condition: Array, x: Array, y: Array, out: Array) -> None:
        np.copyto(out, y)
        np.copyto(out, x, where=condition)

    return apply(choose, condition, X, Y, dtype=X.dtype)


@operator("IsNaN", since=9)
def is_nan(X: Array) -> Array:
    """Whether each element is NaN."""
    return apply(np.isnan, X, dtype=np.bool_)


@operator("IsInf", since=10)
def is_inf(X: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Whether each element is infinite, of the signs to detect."""
    if X.dtype.name.endswith(("fn", "fnuz")):  # these float8 have no infinity
        return np.zeros(X.shape, np.bool_)
    infinite = np.isinf(X)
    if not detect_negative:
        infinite = infinite & (X > 0)
    return infinite & (X < 0) if not detect_positive else infinite
