"""Add, Sub, Mul, Div, Mod, Pow; Max, Min, Sum, Mean of any number of inputs."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tracer.interpreter.numeric import compiled_elementwise
from tracer.interpreter.numeric.elementwise import Compute, aligned, apply, apply_float
from tracer.interpreter.registry import operator
from tracer.support.types import Array


def divide(a: Array, b: Array, out: Array) -> None:
    """Divides; integers are rounded towards zero, as in C."""
    if out.dtype.kind not in "iu":
        np.divide(a, b, out=out)
        return
    np.floor_divide(a, b, out=out)
    if out.dtype.kind == "i":
        out += (np.fmod(a, b) != 0) & ((a < 0) != (b < 0))


def binary(name: str, compute: Compute) -> Callable[[Array, Array], Array]:
    """Returns an operator with numpy's broadcasting, as from opset 7."""

    def function(A: Array, B: Array) -> Array:
        a, b = (B, A) if name in ("Add", "Mul") and A.size < B.size else (A, B)
        return (
            compiled_elementwise.binary(name, a, b)
            if compiled_elementwise.pairs(a, b)
            else apply(compute, A, B)
        )

    return function


def legacy_binary(compute: Compute, dtype: Any = None) -> Callable[..., Array]:
    """Returns the operator as before opset 7, with one-sided broadcasting."""

    def function(
        A: Array,
        B: Array,
        *,
        axis: int | None = None,
        broadcast: int = 0,
        consumed_inputs: Sequence[int] | None = None,
    ) -> Array:
        return apply(compute, A, aligned(A, B, broadcast, axis), dtype=dtype)

    return function


def folded(compute: Compute) -> Callable[..., Array]:
    """Returns an operator that folds any number of inputs."""

    def function(*data_0: Array, consumed_inputs: Sequence[int] | None = None) -> Array:
        return reduce(lambda a, b: apply(compute, a, b), data_0)

    return function


_BINARY: dict[str, Compute] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": divide}
for _name, _compute in _BINARY.items():
    operator(_name, since=7)(binary(_name, _compute))
    operator(_name, since=1)(legacy_binary(_compute))

for _name, _compute in {"Max": np.maximum, "Min": np.minimum}.items():
    operator(_name)(folded(_compute))


@operator("Sum")
def total(*data_0: Array, consumed_inputs: Sequence[int] | None = None) -> Array:
    """The element-wise sum of the inputs; half precision is added up in float32."""
    return apply_float(lambda *arrays, out: np.copyto(out, reduce(np.add, arrays)), *data_0)


@operator("Mean")
def mean(*data_0: Array, consumed_inputs: Sequence[int] | None = None) -> Array:
    """The element-wise mean of the inputs; half precision is added up in float32."""
    return apply_float(
        lambda *arrays, out: np.divide(reduce(np.add, arrays), len(arrays), out=out), *data_0
    )


@operator("Pow", since=7)
def power(X: Array, Y: Array) -> Array:
    """X to the power of Y, in the type of X."""
    if X.dtype == Y.dtype and X.dtype.kind != "i":
        return apply(np.power, X, Y)
    wide = np.result_type(X.dtype, np.float64) if X.dtype.kind in "iu" else X.dtype
    if X.dtype.kind in "iu" and Y.dtype.kind in "iu" and (Y >= 0).all():
        wide = X.dtype  # exact, where float64 would round
    return apply(np.power, X.astype(wide), Y.astype(wide)).astype(X.dtype)


@operator("Pow", since=1)
def power_1(X: Array, Y: Array, *, axis: int | None = None, broadcast: int = 0) -> Array:
    """Pow before opset 7: one-sided broadcasting."""
    return power(X, aligned(X, Y, broadcast, axis))


@operator("Mod", since=10)
def mod(A: Array, B: Array, *, fmod: int = 0) -> Array:
    """The remainder, with the sign of the divisor, or of the dividend if `fmod` is set."""
    return apply(np.fmod if fmod else np.mod, A, B)
