"""Comparisons, boolean and bitwise operators, Where, IsNaN, IsInf."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric.elementwise import Compute, aligned, apply
from tracer.interpreter.registry import operator
from tracer.support.types import Array


def comparison(compute: Compute) -> Callable[[Array, Array], Array]:
    """Returns an operator with a boolean result and numpy's broadcasting."""

    def function(A: Array, B: Array) -> Array:
        return apply(compute, A, B, dtype=np.bool_)

    return function


def legacy_comparison(compute: Compute) -> Callable[..., Array]:
    """Returns the operator as before opset 7, with one-sided broadcasting."""

    def function(A: Array, B: Array, *, axis: int | None = None, broadcast: int = 0) -> Array:
        return apply(compute, A, aligned(A, B, broadcast, axis), dtype=np.bool_)

    return function


for _name, _compute in {
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}.items():
    operator(_name, since=7)(comparison(_compute))
    operator(_name, since=1)(legacy_comparison(_compute))

operator("LessOrEqual", since=12)(comparison(np.less_equal))
operator("GreaterOrEqual", since=12)(comparison(np.greater_equal))


@operator("Not")
def not_(X: Array) -> Array:
    """The negation."""
    return apply(np.logical_not, X)


@operator("BitwiseAnd", since=18)
def bitwise_and(A: Array, B: Array) -> Array:
    """Bits set in both."""
    return apply(np.bitwise_and, A, B)


@operator("BitwiseOr", since=18)
def bitwise_or(A: Array, B: Array) -> Array:
    """Bits set in either."""
    return apply(np.bitwise_or, A, B)


@operator("BitwiseXor", since=18)
def bitwise_xor(A: Array, B: Array) -> Array:
    """Bits set in exactly one."""
    return apply(np.bitwise_xor, A, B)


@operator("BitwiseNot", since=18)
def bitwise_not(X: Array) -> Array:
    """All bits flipped."""
    return apply(np.invert, X)


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
