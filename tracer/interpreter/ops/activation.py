"""Activation functions: Relu, Elu, Sigmoid, Gelu, Clip and their relatives."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracer.interpreter.numeric import compiled
from tracer.interpreter.numeric.tensors import apply, apply_float
from tracer.interpreter.operators import operator, parameters_of
from tracer.interpreter.ops.arithmetic import erf_into
from tracer.support.types import Array

_Consumed = Sequence[int] | None


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
def relu(X: Array, *, consumed_inputs: _Consumed = None) -> Array:
    """max(x, 0); -0 stays, as in onnxruntime."""
    if compiled.takes_elements(X):
        return compiled.relu(X)

    def rectify(x: Array, out: Array) -> None:
        np.maximum(x, 0, out=out)
        np.copyto(out, x, where=x == 0)

    return apply(rectify, X)


@float_function("LeakyRelu")
def leaky_relu(
    x: Array, out: Array, *, alpha: float = 0.01, consumed_inputs: _Consumed = None
) -> None:
    """x, or alpha x where x is negative."""
    np.multiply(x, alpha, out=out)
    np.copyto(out, x, where=x >= 0)


@operator("PRelu")
def prelu_1(X: Array, slope: Array, *, consumed_inputs: _Consumed = None) -> Array:
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
def elu(x: Array, out: Array, *, alpha: float = 1.0, consumed_inputs: _Consumed = None) -> None:
    """x, or alpha (exp(x) - 1) where x is negative."""
    _exponential_into(x, out, 1.0, alpha, 1.0)


@float_function("Selu", since=6)
def selu(
    x: Array, out: Array,
    *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323,
    consumed_inputs: _Consumed = None,
) -> None:  # fmt: skip
    """gamma x, or gamma alpha (exp(x) - 1) where x is negative."""
    _exponential_into(x, out, gamma, gamma * alpha, 1.0)


@float_function("Selu", since=1)
def selu_1(
    x: Array, out: Array,
    *, alpha: float = 1.6732, gamma: float = 1.0507, consumed_inputs: _Consumed = None,
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
def sigmoid(x: Array, out: Array, *, consumed_inputs: _Consumed = None) -> None:
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
    *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: _Consumed = None,
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
    *, min: float | None = None, max: float | None = None, consumed_inputs: _Consumed = None,
) -> Array:  # fmt: skip
    """Clip before opset 11: bounds are attributes."""
    low, high = (None if v is None else np.array(v, input.dtype) for v in (min, max))
    return clip(input, low, high)
