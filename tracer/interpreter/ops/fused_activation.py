"""FusedConv and FusedGemm, domain com.microsoft: a convolution or product, then an activation."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.ops.activation import hard_sigmoid, hard_swish, leaky_relu, relu, sigmoid
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.ops.conv import conv
from tracer.interpreter.ops.matmul import gemm
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Ints = Sequence[int] | None
_ACTIVATIONS: Mapping[str, Callable[..., Array]] = {
    "": lambda x: x,
    "Relu": relu,
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
    "HardSwish": hard_swish,
    "LeakyRelu": lambda x, alpha=0.01: leaky_relu(x, alpha=alpha),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: hard_sigmoid(x, alpha=alpha, beta=beta),
    "Clip": lambda x, low=-np.inf, high=np.inf: np.clip(x, x.dtype.type(low), x.dtype.type(high)),
}
"""Functions by name; each takes its parameters in the order of `activation_params`."""


@operator("FusedConv", domain=DOMAIN)
def fused_conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    Z: Array | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: _Ints = None,
    group: int = 1,
    kernel_shape: _Ints = None,
    pads: _Ints = None,
    strides: _Ints = None,
) -> Array:
    """The activation of Conv(X, W, B) + Z."""
    result = conv(
        X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    return activated(result if Z is None else result + Z, activation, activation_params)


@operator("FusedGemm", domain=DOMAIN)
def fused_gemm(
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """The activation of alpha A B + beta C."""
    result = gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    given = activation_alpha, activation_beta, activation_gamma
    return activated(result, activation, [each for each in given if each is not None])


def activated(x: Array, name: str, parameters: Sequence[float]) -> Array:
    """The activation of this name. Raises ModelError for another one."""
    if name not in _ACTIVATIONS:
        allowed = ", ".join(each for each in _ACTIVATIONS if each)
        raise ModelError(f"activation '{name}' is not one of {allowed}")
    return np.asarray(_ACTIVATIONS[name](x, *parameters))
