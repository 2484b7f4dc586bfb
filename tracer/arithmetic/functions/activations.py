"""Operators of one element as onnxruntime writes them: the steps between functions, in their order.

Every step is rounded to float32. `library` has exp, log …: `packets`, or `c_library` for what is
left over at the end of a buffer. `attributes` are those of the node.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from tracer.arithmetic.functions import mlas
from tracer.support.types import Array

_F = np.float32
_ONE, _HALF = _F(1), _F(0.5)
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
_MINUS_ZERO = np.int32(-(2**31))
_ROOT_HALF = _F(np.sqrt(0.5))
_GELU_SLOPE, _GELU_CUBE = _F(0.7978845608028654), _F(0.035677408136300125)
"""The square root of 2/pi, and 0.044715 times it."""
Attributes = Mapping[str, Any]


def elu(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns alpha (exp(x) - 1) below 0."""
    return np.where(x >= 0, x, _F(attributes.get("alpha", 1)) * (library.exp(x) - _ONE))


def selu(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns gamma times an Elu; the two factors are multiplied first."""
    gamma = _F(attributes.get("gamma", _SELU_GAMMA))
    factor = gamma * _F(attributes.get("alpha", _SELU_ALPHA))
    return np.where(x > 0, gamma * x, factor * (library.exp(x) - _ONE))


def celu(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns x above 0, and alpha (exp(x / alpha) - 1) below."""
    alpha = _F(attributes.get("alpha", 1))
    low = alpha * (library.exp(x / alpha) - _ONE)
    return np.asarray(np.maximum(x, _F(0)) + np.minimum(low, _F(0)))


def softplus(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns log(1 + exp(x)), the exponent never above 0."""
    low: Array = library.log1p(library.exp(x))
    return np.asarray(np.where(x > 0, x + library.log1p(library.exp(-x)), low))


def mish(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns x tanh(softplus(x))."""
    return np.asarray(x * mlas.tanh(softplus(library, x, attributes)))


def is_plain(*arrays: Array) -> bool:
    """Whether no number is -0 or NaN: a maximum does not depend on the order of operands."""
    return not any(
        (np.ascontiguousarray(x).view(np.int32) == _MINUS_ZERO).any() or np.isnan(x).any()
        for x in arrays
    )


def relu(x: Array) -> Array:
    """Returns x, or 0 below it: -0 stays."""
    return np.maximum(x, _F(0)) if is_plain(x) else np.where(x < 0, _F(0), x)


def clip(x: Array, *rest: Any) -> Array:
    """Returns x within its other inputs, or those of the attributes, which come last.

    What equals a limit stays, with its sign.
    """
    *inputs, attributes = rest
    low, high = (*inputs, None)[:2] if inputs else (attributes.get("min"), attributes.get("max"))
    limits = [np.asarray(each, _F) for each in (low, high) if each is not None]
    if limits and is_plain(x, *limits):
        return np.asarray(np.clip(x, low, high))
    if low is not None:
        x = np.where(x < low, low, x)
    return x if high is None else np.where(x > high, high, x)


def softsign(x: Array) -> Array:
    """Returns x / (1 + |x|) as a product with the reciprocal."""
    return _ONE / (_ONE + np.abs(x)) * x


def gelu(x: Array) -> Array:
    """Returns x (1 + erf(x / sqrt 2)) / 2."""
    return _HALF * x * (mlas.erf(x * _ROOT_HALF) + _ONE)


def gelu_by_tanh(x: Array) -> Array:
    """Returns the approximation of Gelu by a hyperbolic tangent."""
    return _HALF * x * (mlas.tanh(x * (_GELU_CUBE * x * x + _GELU_SLOPE)) + _ONE)


def quick_gelu(x: Array, alpha: float) -> Array:
    """Returns x / (1 + exp(-alpha x))."""
    return x * mlas.logistic(x if alpha == 1 else x * _F(alpha))
