"""Activation functions: Relu, Elu, Sigmoid, Gelu, Clip and their relatives."""

from collections.abc import Sequence

import numpy as np

from tracer.interpreter.numeric import compiled
from tracer.interpreter.numeric.tensors import apply, apply_float
from tracer.interpreter.operators import operator
from tracer.interpreter.ops.arithmetic import erf_into
from tracer.support.types import Array

_Consumed = Sequence[int] | None


@operator("Relu")
def relu(X: Array, *, consumed_inputs: _Consumed = None) -> Array:
    """max(x, 0)."""
    if compiled.takes_elements(X):
        return compiled.relu(X)
    return apply(np.maximum, X, np.zeros((), X.dtype))


@operator("LeakyRelu")
def leaky_relu(X: Array, *, alpha: float = 0.01, consumed_inputs: _Consumed = None) -> Array:
    """x, or alpha x where x is negative."""

    def compute(x: Array, out: Array) -> None:
        np.multiply(x, alpha, out=out)
        np.copyto(out, x, where=x >= 0)

    return apply_float(compute, X)


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


@operator("ThresholdedRelu", since=10)
def thresholded_relu(X: Array, *, alpha: float = 1.0) -> Array:
    """x where x > alpha, else 0."""

    def compute(x: Array, out: Array) -> None:
        out[...] = 0
        np.copyto(out, x, where=x > alpha)

    return apply_float(compute, X)


@operator("Elu")
def elu(X: Array, *, alpha: float = 1.0, consumed_inputs: _Consumed = None) -> Array:
    """x, or alpha (exp(x) - 1) where x is negative."""
    return _exponential(X, 1.0, alpha, 1.0)


@operator("Selu", since=6)
def selu(
    X: Array,
    *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323,
    consumed_inputs: _Consumed = None,
) -> Array:  # fmt: skip
    """gamma x, or gamma alpha (exp(x) - 1) where x is negative."""
    return _exponential(X, gamma, gamma * alpha, 1.0)


@operator("Selu", since=1)
def selu_1(
    X: Array, *, alpha: float = 1.6732, gamma: float = 1.0507, consumed_inputs: _Consumed = None
) -> Array:
    """Selu before opset 6, with shorter constants."""
    return _exponential(X, gamma, gamma * alpha, 1.0)


@operator("Celu", since=12)
def celu(X: Array, *, alpha: float = 1.0) -> Array:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    return _exponential(X, 1.0, alpha, alpha)


@operator("Sigmoid")
def sigmoid(X: Array, *, consumed_inputs: _Consumed = None) -> Array:
    """1 / (1 + exp(-x))."""
    return apply_float(sigmoid_into, X)


@operator("HardSigmoid")
def hard_sigmoid(
    X: Array, *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: _Consumed = None
) -> Array:
    """alpha x + beta, clipped to [0, 1]."""

    def compute(x: Array, out: Array) -> None:
        np.multiply(x, alpha, out=out)
        out += beta
        np.clip(out, 0, 1, out=out)

    return apply_float(compute, X)


@operator("HardSwish", since=14)
def hard_swish(X: Array) -> Array:
    """x times clip(x / 6 + 1/2, 0, 1)."""

    def compute(x: Array, out: Array) -> None:
        np.multiply(x, 1 / 6, out=out)
        out += 0.5
        np.clip(out, 0, 1, out=out)
        out *= x

    return apply_float(compute, X)


@operator("Swish", since=24)
def swish(X: Array, *, alpha: float = 1.0) -> Array:
    """x sigmoid(alpha x)."""

    def compute(x: Array, out: Array) -> None:
        sigmoid_into(x * alpha, out)
        out *= x

    return apply_float(compute, X)


@operator("Mish", since=18)
def mish(X: Array) -> Array:
    """x tanh(softplus(x))."""

    def compute(x: Array, out: Array) -> None:
        np.logaddexp(x, 0, out=out)
        np.tanh(out, out=out)
        out *= x

    return apply_float(compute, X)


@operator("Softplus")
def softplus(X: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return apply_float(lambda x, out: np.logaddexp(x, 0, out=out), X)


@operator("Softsign")
def softsign(input: Array) -> Array:
    """x / (1 + |x|)."""

    def compute(x: Array, out: Array) -> None:
        np.absolute(x, out=out)
        out += 1
        np.divide(x, out, out=out)

    return apply_float(compute, input)


@operator("Gelu", since=20)
def gelu(X: Array, *, approximate: str = "none") -> Array:
    """x times the normal distribution function, or its tanh approximation."""

    def exact(x: Array, out: Array) -> None:
        erf_into(x * x.dtype.type(np.sqrt(0.5)), out)
        out += 1
        out *= 0.5  # first: the largest numbers have no double
        out *= x

    def by_tanh(x: Array, out: Array) -> None:
        np.multiply(x * x, x, out=out)
        out *= 0.044715
        out += x
        out *= x.dtype.type(np.sqrt(2 / np.pi))
        np.tanh(out, out=out)
        out += 1
        out *= 0.5
        out *= x

    return apply_float(by_tanh if approximate == "tanh" else exact, X)


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


def sigmoid_into(x: Array, out: Array) -> None:
    """Writes the sigmoid to `out`; exp may overflow to infinity, whose reciprocal is 0."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    np.reciprocal(out, out=out)


def _exponential(x: Array, positive: float, negative: float, scale: float) -> Array:
    """positive * x where x > 0, else negative * (exp(x / scale) - 1)."""

    def compute(x: Array, out: Array) -> None:
        np.minimum(x, 0, out=out)
        out /= scale
        np.expm1(out, out=out)
        out *= negative
        np.copyto(out, x * positive, where=x > 0)

    return apply_float(compute, x)
