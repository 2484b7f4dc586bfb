"""Element-wise arithmetic, functions, comparisons, logic and activations, with broadcasting."""

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import compiled
from tracer.interpreter.numeric.tensors import Compute, apply, apply_float, nonnegative_axis
from tracer.interpreter.operators import Ints, operator, parameters_of
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
        return compiled.binary(name, a, b) if compiled.takes_pair(a, b) else apply(compute, A, B)

    return function


def legacy_binary(compute: Compute, dtype: Any = None) -> Callable[..., Array]:
    """Returns the operator as before opset 7, with one-sided broadcasting."""

    def function(
        A: Array, B: Array,
        *, axis: int | None = None, broadcast: int = 0, consumed_inputs: Ints = None,
    ) -> Array:  # fmt: skip
        return apply(compute, A, _one_sided(A, B, broadcast, axis), dtype=dtype)

    return function


def _one_sided(a: Array, b: Array, broadcast: int, axis: int | None) -> Array:
    """Reshapes `b` for broadcasting before opset 7: its axes start at `axis` of `a`."""
    if not broadcast or axis is None:
        return b
    start = nonnegative_axis(axis, a.ndim)
    return b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim))


def broadcast(compute: Compute, dtype: Any = None) -> Callable[[Array, Array], Array]:
    """Returns an operator with numpy's broadcasting and results of `dtype`."""

    def function(A: Array, B: Array) -> Array:
        return apply(compute, A, B, dtype=dtype)

    return function


def unary(compute: Compute) -> Callable[..., Array]:
    """Returns an operator of one input; `consumed_inputs` is a hint that opset 6 dropped."""

    def function(X: Array, *, consumed_inputs: Ints = None) -> Array:
        return apply(compute, X)

    return function


def folded(compute: Compute) -> Callable[..., Array]:
    """Returns an operator that folds any number of inputs."""

    def function(*data_0: Array, consumed_inputs: Ints = None) -> Array:
        return reduce(lambda a, b: apply(compute, a, b), data_0)

    return function


_UNARY: dict[str, tuple[int, Compute]] = {
    "Abs": (1, np.absolute), "Ceil": (1, np.ceil), "Exp": (1, np.exp), "Floor": (1, np.floor),
    "Log": (1, np.log), "Neg": (1, np.negative), "Not": (1, np.logical_not),
    "Reciprocal": (1, np.reciprocal), "Sqrt": (1, np.sqrt), "Tanh": (1, np.tanh),
    "Acos": (7, np.arccos), "Asin": (7, np.arcsin), "Atan": (7, np.arctan), "Cos": (7, np.cos),
    "Sin": (7, np.sin), "Tan": (7, np.tan), "Acosh": (9, np.arccosh), "Asinh": (9, np.arcsinh),
    "Atanh": (9, np.arctanh), "Cosh": (9, np.cosh), "Sign": (9, np.sign), "Sinh": (9, np.sinh),
    "Round": (11, np.rint), "BitwiseNot": (18, np.invert),
}  # fmt: skip
_ARITHMETIC: dict[str, Compute] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": divide,
}  # fmt: skip
_COMPARISONS: dict[str, Compute] = {
    "Equal": np.equal, "Less": np.less, "Greater": np.greater, "And": np.logical_and,
    "Or": np.logical_or, "Xor": np.logical_xor,
}  # fmt: skip
"""Operators of each kind by name, those of one input with their first version."""

for _name, (_since, _compute) in _UNARY.items():
    operator(_name, since=_since)(unary(_compute))
for _name, _compute in _ARITHMETIC.items():
    operator(_name, since=7)(binary(_name, _compute))
    operator(_name)(legacy_binary(_compute))
for _name, _compute in _COMPARISONS.items():
    operator(_name, since=7)(broadcast(_compute, np.bool_))
    operator(_name)(legacy_binary(_compute, np.bool_))
operator("LessOrEqual", since=12)(broadcast(np.less_equal, np.bool_))
operator("GreaterOrEqual", since=12)(broadcast(np.greater_equal, np.bool_))
operator("BitwiseAnd", since=18)(broadcast(np.bitwise_and))
operator("BitwiseOr", since=18)(broadcast(np.bitwise_or))
operator("BitwiseXor", since=18)(broadcast(np.bitwise_xor))
operator("Max")(folded(np.maximum))
operator("Min")(folded(np.minimum))


@operator("Sum")
def total(*data_0: Array, consumed_inputs: Ints = None) -> Array:
    """The element-wise sum of the inputs; half precision is added up in float32."""
    return apply_float(lambda *arrays, out: np.copyto(out, reduce(np.add, arrays)), *data_0)


@operator("Mean")
def mean(*data_0: Array, consumed_inputs: Ints = None) -> Array:
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
    return power(X, _one_sided(X, Y, broadcast, axis))


@operator("Mod", since=10)
def mod(A: Array, B: Array, *, fmod: int = 0) -> Array:
    """The remainder, with the sign of the divisor, or of the dividend if `fmod` is set."""
    return apply(np.fmod if fmod else np.mod, A, B)


# float32: x P(x^2)/Q(x^2) up to 4, fitted to math.erf (6 units in the last place). Highest power
# first.
_ERF = (
    (1.98673998e-06, 2.84566065e-4, 3.88343334e-3, 5.31020138e-2, 1.93547394e-1, 1.12837914),
    (3.7419745e-05, 1.1855894e-3, 1.5207431e-2, 1.15350928e-1, 5.04859468e-1, 1.0),
)

_ERF_FLOAT64 = np.frompyfunc(math.erf, 1, 1)
"""A call for each element, which is slow: few models compute in float64."""


@operator("Erf", since=9)
def erf(input: Array) -> Array:
    """The error function."""
    if input.dtype.kind in "iu":
        return apply(erf_into, input.astype(np.float64)).astype(input.dtype)
    if compiled.takes_elements(input):
        return compiled.ratio(input, *_ERF, 4, 1)
    return apply_float(erf_into, input)


def erf_into(x: Array, out: Array) -> None:
    """Writes the error function of float32 or float64 `x` to `out`."""
    if x.dtype.itemsize > 4:
        out[...] = _ERF_FLOAT64(x)
        return
    near = np.clip(x, -4, 4)
    square = near * near
    polynomials = []
    for terms in _ERF:
        total = np.full_like(square, terms[0])
        for term in terms[1:]:
            total *= square
            total += term
        polynomials.append(total)
    top, bottom = polynomials
    top /= bottom
    np.multiply(near, top, out=out)
    np.clip(out, -1, 1, out=out)


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


operator("IsNaN", since=9)(lambda X: apply(np.isnan, X, dtype=np.bool_))


@operator("IsInf", since=10)
def is_inf(X: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Whether each element is infinite, of the signs to detect."""
    if X.dtype.name.endswith(("fn", "fnuz")):  # these float8 have no infinity
        return np.zeros(X.shape, np.bool_)
    infinite = np.isinf(X)
    if not detect_negative:
        infinite = infinite & (X > 0)
    return infinite & (X < 0) if not detect_positive else infinite


def float_function(
    *names: str, since: int = 1
) -> Callable[[Callable[..., None]], Callable[..., Array]]:
    """Registers `compute(x, out)`, which writes to `out`, as operators; attributes are its own.

    It is called with blocks of the tensor, of half precision and float8 in float32.
    """

    def register(compute: Callable[..., None]) -> Callable[..., Array]:
        @operator(*names, since=since)
        @parameters_of(compute)
        def function(X: Array, **attributes: Any) -> Array:
            return apply_float(partial(compute, **attributes), X)

        return function

    return register


@operator("Relu")
def relu(X: Array, *, consumed_inputs: Ints = None) -> Array:
    """max(x, 0); -0 stays, as in onnxruntime."""
    if compiled.takes_elements(X):
        return compiled.relu(X)

    def rectify(x: Array, out: Array) -> None:
        np.maximum(x, 0, out=out)
        np.copyto(out, x, where=x == 0)

    return apply(rectify, X)


@float_function("LeakyRelu")
def leaky_relu(x: Array, out: Array, *, alpha: float = 0.01, consumed_inputs: Ints = None) -> None:
    """x, or alpha x where x is negative."""
    np.multiply(x, alpha, out=out)
    np.copyto(out, x, where=x >= 0)


@operator("PRelu")
def prelu_1(X: Array, slope: Array, *, consumed_inputs: Ints = None) -> Array:
    """PRelu before opset 7: one slope, or one per channel."""
    return prelu(X, slope.reshape(-1, *[1] * (X.ndim - 2)) if slope.size > 1 else slope)


@operator("PRelu", since=7)
def prelu(X: Array, slope: Array) -> Array:
    """x, or slope x where x is negative."""

    def compute(x: Array, slope: Array, out: Array) -> None:
        np.multiply(x, slope, out=out)
        np.copyto(out, x, where=x >= 0)

    return apply(compute, X, slope)


@float_function("ThresholdedRelu", since=10)
def thresholded_relu(x: Array, out: Array, *, alpha: float = 1.0) -> None:
    """x where x > alpha, else 0."""
    out[...] = 0
    np.copyto(out, x, where=x > alpha)


@float_function("Elu")
def elu(x: Array, out: Array, *, alpha: float = 1.0, consumed_inputs: Ints = None) -> None:
    """x, or alpha (exp(x) - 1) where x is negative."""
    _exponential_into(x, out, 1.0, alpha, 1.0)


@float_function("Selu", since=6)
def selu(
    x: Array, out: Array,
    *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323,
    consumed_inputs: Ints = None,
) -> None:  # fmt: skip
    """gamma x, or gamma alpha (exp(x) - 1) where x is negative."""
    _exponential_into(x, out, gamma, gamma * alpha, 1.0)


@float_function("Selu", since=1)
def selu_1(
    x: Array, out: Array,
    *, alpha: float = 1.6732, gamma: float = 1.0507, consumed_inputs: Ints = None,
) -> None:  # fmt: skip
    """Selu before opset 6, with shorter constants."""
    _exponential_into(x, out, gamma, gamma * alpha, 1.0)


@float_function("Celu", since=12)
def celu(x: Array, out: Array, *, alpha: float = 1.0) -> None:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    _exponential_into(x, out, 1.0, alpha, alpha)


def _exponential_into(x: Array, out: Array, positive: float, negative: float, scale: float) -> None:
    """positive * x where x > 0, else negative * (exp(x / scale) - 1)."""
    np.minimum(x, 0, out=out)
    out /= scale
    np.expm1(out, out=out)
    out *= negative
    np.copyto(out, x * positive, where=x > 0)


@float_function("Sigmoid")
def sigmoid(x: Array, out: Array, *, consumed_inputs: Ints = None) -> None:
    """1 / (1 + exp(-x))."""
    _sigmoid_into(x, out)


def _sigmoid_into(x: Array, out: Array) -> None:
    """Writes the sigmoid to `out`; exp may overflow to infinity, whose reciprocal is 0."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    np.reciprocal(out, out=out)


@float_function("HardSigmoid")
def hard_sigmoid(
    x: Array, out: Array,
    *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: Ints = None,
) -> None:  # fmt: skip
    """alpha x + beta, clipped to [0, 1]."""
    np.multiply(x, alpha, out=out)
    out += beta
    np.clip(out, 0, 1, out=out)


@float_function("HardSwish", since=14)
def hard_swish(x: Array, out: Array) -> None:
    """x times clip(x / 6 + 1/2, 0, 1)."""
    np.multiply(x, 1 / 6, out=out)
    out += 0.5
    np.clip(out, 0, 1, out=out)
    out *= x


@float_function("Swish", since=24)
def swish(x: Array, out: Array, *, alpha: float = 1.0) -> None:
    """x sigmoid(alpha x)."""
    _sigmoid_into(x * alpha, out)
    out *= x


@float_function("Mish", since=18)
def mish(x: Array, out: Array) -> None:
    """x tanh(softplus(x))."""
    np.logaddexp(x, 0, out=out)
    np.tanh(out, out=out)
    out *= x


@float_function("Softplus")
def softplus(x: Array, out: Array) -> None:
    """log(1 + exp(x)), without overflow."""
    np.logaddexp(x, 0, out=out)


@float_function("Softsign")
def softsign(x: Array, out: Array) -> None:
    """x / (1 + |x|)."""
    np.absolute(x, out=out)
    out += 1
    np.divide(x, out, out=out)


@float_function("Gelu", since=20)
def gelu(x: Array, out: Array, *, approximate: str = "none") -> None:
    """x times the normal distribution function, or its tanh approximation."""
    if approximate == "tanh":
        np.multiply(x * x, x, out=out)
        out *= 0.044715
        out += x
        out *= x.dtype.type(np.sqrt(2 / np.pi))
        np.tanh(out, out=out)
    else:
        erf_into(x * x.dtype.type(np.sqrt(0.5)), out)
    out += 1
    out *= 0.5  # before x: the largest numbers have no double
    out *= x


@operator("Shrink", since=9)
def shrink(input: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """0 where |x| <= lambd, else x moved towards 0 by the bias."""
    x = input.astype(np.float64)
    moved = np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))
    return moved.astype(input.dtype)


@operator("Clip", since=11)
def clip(input: Array, min: Array | None = None, max: Array | None = None) -> Array:
    """Clips `input` to [min, max]; where min > max, the result is max."""
    raised = input if min is None else apply(np.maximum, input, min)
    return raised if max is None else apply(np.minimum, raised, max)


@operator("Clip")
def clip_1(
    input: Array,
    *, min: float | None = None, max: float | None = None, consumed_inputs: Ints = None,
) -> Array:  # fmt: skip
    """Clip before opset 11: bounds are attributes."""
    low, high = (None if v is None else np.array(v, input.dtype) for v in (min, max))
    return clip(input, low, high)
