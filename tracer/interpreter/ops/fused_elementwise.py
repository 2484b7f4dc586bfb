"""onnxruntime's fused element-wise operators, domain com.microsoft: a bias, an activation."""

from tracer.interpreter.ops.activation import gelu, swish
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("Gelu", domain=DOMAIN)
def exact_gelu(X: Array) -> Array:
    """x times the normal distribution function."""
    return gelu(X)


@operator("BiasGelu", domain=DOMAIN)
def bias_gelu(A: Array, B: Array) -> Array:
    """Gelu of A + B."""
    return gelu(A + B)


@operator("FastGelu", domain=DOMAIN)
def fast_gelu(X: Array, bias: Array | None = None) -> Array:
    """The tanh approximation of Gelu, of X or of X + bias."""
    return gelu(X if bias is None else X + bias, approximate="tanh")


@operator("QuickGelu", domain=DOMAIN)
def quick_gelu(X: Array, *, alpha: float = 1.702) -> Array:
    """x sigmoid(alpha x)."""
    return swish(X, alpha=alpha)
