"""What onnxruntime fuses, or has as a standard operator at another version, domain com.microsoft.

Some are older than the standard operator, some let channels be the last axis.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.tensors import nonnegative_axis
from tracer.interpreter.operators import MICROSOFT, operator, parameters_of
from tracer.interpreter.ops import arithmetic
from tracer.interpreter.ops.conv import conv, conv_transpose
from tracer.interpreter.ops.generated import range_
from tracer.interpreter.ops.indexing import gather_nd, unique
from tracer.interpreter.ops.matmul import gemm, matmul
from tracer.interpreter.ops.pooling import max_pool
from tracer.interpreter.ops.resize import grid_sample_16
from tracer.interpreter.ops.shape import pad, trilu
from tracer.support.types import Array

_ACTIVATIONS: Mapping[str, Callable[..., Array]] = {
    "": lambda x: x,
    "Relu": arithmetic.relu,
    "Sigmoid": arithmetic.sigmoid,
    "Tanh": np.tanh,
    "HardSwish": arithmetic.hard_swish,
    "LeakyRelu": lambda x, alpha=0.01: arithmetic.leaky_relu(x, alpha=alpha),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: arithmetic.hard_sigmoid(
        x, alpha=alpha, beta=beta
    ),
    "Clip": lambda x, low=-np.inf, high=np.inf: np.clip(x, x.dtype.type(low), x.dtype.type(high)),
}
"""Functions by name; each takes its parameters in the order of `activation_params`."""


@operator("FusedConv", domain=MICROSOFT)
@parameters_of(conv)
def fused_conv(
    X: Array, W: Array, B: Array | None = None, Z: Array | None = None,
    *, activation: str = "", activation_params: Sequence[float] = (), **attributes: Any,
) -> Array:  # fmt: skip
    """The activation of Conv(X, W, B) + Z."""
    result = conv(X, W, B, **attributes)
    return activated(result if Z is None else result + Z, activation, activation_params)


@operator("FusedGemm", domain=MICROSOFT)
@parameters_of(gemm)
def fused_gemm(
    *inputs: Array,
    activation: str = "", activation_alpha: float | None = None,
    activation_beta: float | None = None, activation_gamma: float | None = None, **attributes: Any,
) -> Array:  # fmt: skip
    """The activation of alpha A B + beta C."""
    result = gemm(*inputs, **attributes)
    given = activation_alpha, activation_beta, activation_gamma
    return activated(result, activation, [each for each in given if each is not None])


def activated(x: Array, name: str, parameters: Sequence[float]) -> Array:
    """The activation of this name. Raises ModelError for another one."""
    if name not in _ACTIVATIONS:
        allowed = ", ".join(each for each in _ACTIVATIONS if each)
        raise ModelError(f"activation '{name}' is not one of {allowed}")
    return np.asarray(_ACTIVATIONS[name](x, *parameters))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(X: Array, bias: Array | None = None) -> Array:
    """The tanh approximation of Gelu, of X or of X + bias."""
    return arithmetic.gelu(X if bias is None else X + bias, approximate="tanh")


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    A: Array, B: Array,
    *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:  # fmt: skip
    """alpha A B, with A and B transposed as the attributes say; vectors are not transposed."""
    left = transposed_as(A, bool(transA), bool(transBatchA))
    product = products.matmul(left, transposed_as(B, bool(transB), bool(transBatchB)))
    return product if alpha == 1 else (product * alpha).astype(A.dtype)


def transposed_as(x: Array, last: bool, batch: bool) -> Array:
    """Moves the first axis behind the batch axes, then exchanges the last two axes."""
    if x.ndim < 2:
        return x
    moved = np.moveaxis(x, 0, -2) if batch else x
    return np.swapaxes(moved, -1, -2) if last else moved


operator("BiasGelu", domain=MICROSOFT)(lambda A, B: arithmetic.gelu(A + B))
operator("ExpandDims", domain=MICROSOFT)(lambda X, axis: np.expand_dims(X, int(axis.reshape(()))))
operator("GatherND", domain=MICROSOFT)(gather_nd)
operator("Gelu", domain=MICROSOFT)(lambda X: arithmetic.gelu(X))
operator("GridSample", domain=MICROSOFT)(grid_sample_16)
operator("MatMulInteger16", domain=MICROSOFT)(  # sums are 32-bit
    lambda A, B: matmul(A.astype(np.int32), B.astype(np.int32))
)
operator("QuickGelu", domain=MICROSOFT)(lambda X, *, alpha=1.702: arithmetic.swish(X, alpha=alpha))
operator("Trilu", domain=MICROSOFT, copies=1)(trilu)


@operator("Pad", domain=MICROSOFT)
def pad_1(data: Array, pads: Array, value: Array | None = None, *, mode: str = "constant") -> Array:
    """Pads as the standard's Pad; `pads` may have a leading axis of size 1."""
    return pad(data, pads.reshape(-1), value, mode=mode)


@operator("Range", domain=MICROSOFT)
def range_1(start: Array, limit: Array, delta: Array | None = None) -> Array:
    """The numbers from `start` to `limit` in steps of `delta`, by default 1."""
    step = np.ones_like(start) if delta is None else delta
    return range_(*(each.reshape(()) for each in (start, limit, step)))


@operator("Inverse", domain=MICROSOFT)
def inverse(X: Array) -> Array:
    """The inverse of each matrix, computed in float32 at least."""
    wide = np.promote_types(X.dtype, np.float32)
    return np.linalg.inv(X.astype(wide)).astype(X.dtype)


@operator("Unique", domain=MICROSOFT, copies=8)
def unique_in_order(x: Array) -> tuple[Array, Array, Array]:
    """Returns the values of x (N) in the order they first appear, the place of each, and counts."""
    values, _, places, counts = unique(x, sorted=0)
    return values, places, counts


@operator("NhwcMaxPool", domain=MICROSOFT)
@parameters_of(max_pool, without=["storage_order"])
def nhwc_max_pool(x: Array, **attributes: Any) -> Array:
    """The largest value of each window, with channels at the last axis."""
    maxima, *_ = max_pool(np.ascontiguousarray(np.moveaxis(x, -1, 1)), **attributes)
    return np.moveaxis(maxima, 1, -1)


@operator("ConvTransposeWithDynamicPads", domain=MICROSOFT)
@parameters_of(conv_transpose, without=["output_shape", "pads"])
def conv_transpose_with_dynamic_pads(
    X: Array, W: Array, Pads: Array | None = None, B: Array | None = None, **attributes: Any
) -> Array:
    """The standard's ConvTranspose, whose pads are an input."""
    pads = None if Pads is None else Pads.reshape(-1).tolist()
    return conv_transpose(X, W, B, pads=pads, **attributes)


@operator("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(input: Array, *, dim: int = -1, size: int, step: int = 1) -> Array:
    """Windows of `size` along an axis, each `step` further, as torch's unfold.

    The elements of a window are a new last axis. Raises ModelError for a window beyond the axis.
    """
    at = nonnegative_axis(dim, input.ndim)
    if not 1 <= size <= input.shape[at] or step < 1:
        raise ModelError(
            f"windows of {size}, each {step} further, along {input.shape[at]} elements"
        )
    windows = np.lib.stride_tricks.sliding_window_view(input, size, axis=at)
    every = windows[(slice(None),) * at + (slice(None, None, step),)]
    limits.allow(every.shape, input.dtype)
    return np.ascontiguousarray(every)
