"""Operators on quantised tensors, of ONNX and of onnxruntime (domain com.microsoft).

Sums are exact. onnxruntime's operators scale and round in the order of its kernels for x86-64, so
that a result halfway between two integers is the same. Kernels for other processors may return the
other neighbour. Some have quantised weights and float results: they quantise activations to uint8
by their own range, as DynamicQuantizeLinear does.
"""

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.operators import MICROSOFT, Ints, NodeContext, operator, parameters_of
from tracer.interpreter.ops.arithmetic import leaky_relu, sigmoid
from tracer.interpreter.ops.matmul import integer_matmul, matmul_integer, per_row
from tracer.interpreter.ops.pooling import average, counts
from tracer.interpreter.ops.quantization import (
    dequantize_linear,
    dynamic_quantize_linear,
    quantize_linear,
    rounded,
)
from tracer.interpreter.ops.recurrent import RecurrentSettings, run_lstm
from tracer.support.types import Array


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    A: Array, B: Array, a_scale: Array, b_scale: Array, a_zero_point: Array | None = None,
    b_zero_point: Array | None = None, bias: Array | None = None,
) -> Array:  # fmt: skip
    """(A - a_zero_point) (B - b_zero_point) times both scales, plus the bias."""
    sums = matmul_integer(A, B, a_zero_point, b_zero_point)
    product = sums.astype(a_scale.dtype) * (a_scale * b_scale)
    return product if bias is None else product + bias


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    A: Array, B: Array, b_scale: Array, b_zero_point: Array | None = None, bias: Array | None = None
) -> Array:
    """A, quantised by its range, times the dequantised B, plus the bias."""
    quantised, scale, zero = dynamic_quantize_linear(A)
    return matmul_integer_to_float(quantised, B, scale, b_scale, zero, b_zero_point, bias)


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
@parameters_of(RecurrentSettings, without=["layout", "output_sequence"])
def dynamic_quantize_lstm(
    X: Array, W: Array, R: Array, B: Array | None, sequence_lens: Array | None,
    initial_h: Array | None, initial_c: Array | None, P: Array | None, W_scale: Array,
    W_zero_point: Array, R_scale: Array, R_zero_point: Array,
    *, input_forget: int = 0, ctx: NodeContext, **attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    """LSTM with weights W (D, I, 4H) and R (D, H, 4H) of 8 bits; see `lstm` for the rest.

    X is quantised by the range of all steps up to the longest sequence, h by its range over the
    batch in each step. That range has the last h of sequences that have ended; if the node has the
    output Y, only in the step after: onnxruntime then reads h from Y, which is 0 from there on.
    Several threads of onnxruntime each take the range of some of the sequences, and outputs differ
    by about 0.01. Scales and zero points are one number, or one for each direction (D), or one for
    each column (D, 4H).
    """
    inputs, recurrence = (
        ((q.astype(np.float32) - by_direction(zero)) * by_direction(scale)).swapaxes(1, 2)
        for q, scale, zero in ((W, W_scale, W_zero_point), (R, R_scale, R_zero_point))
    )
    longest = len(X) if sequence_lens is None else int(sequence_lens.max(initial=0))
    ended = np.zeros_like(X[longest:])  # zeros are in any range
    return run_lstm(
        (np.concatenate([X[:longest], ended]), inputs, recurrence, B), sequence_lens,
        [initial_h, initial_c], RecurrentSettings(**attributes), P, input_forget,
        lambda x: dequantize_linear(*dynamic_quantize_linear(x)), ctx.outputs_named[0],
    )  # fmt: skip


def by_direction(parameter: Array) -> Array:
    """Returns a parameter as float32, reshaped (D) or (D, 4H) to match weights (D, I, 4H)."""
    wide = parameter.astype(np.float32)
    return wide.reshape(len(wide), 1, -1) if wide.size > 1 else wide.reshape(1, 1, 1)


@operator("ConvInteger", since=10)
def conv_integer(
    x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1,
    kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Array:  # fmt: skip
    """Subtracts the zero points of 8-bit tensors and convolves into int32; padding is 0."""
    products.check_channels(x, w, group)
    slid = window(x.shape[2:], w.shape[2:], strides, pads, dilations, auto_pad)
    return convolve_centred(centred(x, x_zero_point), centred(w, w_zero_point), slid, group)


@operator("QLinearConv", since=10)
@parameters_of(conv_integer)
def qlinear_conv(
    x: Array, x_scale: Array, x_zero_point: Array, w: Array, w_scale: Array, w_zero_point: Array,
    y_scale: Array, y_zero_point: Array, B: Array | None = None,
    **attributes: Any,
) -> Array:  # fmt: skip
    """Convolves quantised tensors, adds the int32 bias, requantises."""
    exact = conv_integer(x, w, x_zero_point, w_zero_point, **attributes)
    channels = (-1, *[1] * (x.ndim - 2))
    if B is not None:
        exact += B.reshape(channels)
    factor = x_scale * (w_scale.reshape(channels) if w_scale.size > 1 else w_scale) / y_scale
    return requantized(exact, factor, y_zero_point)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Array, a_scale: Array, a_zero_point: Array, b: Array, b_scale: Array, b_zero_point: Array,
    y_scale: Array, y_zero_point: Array,
) -> Array:  # fmt: skip
    """Multiplies quantised matrices and requantises; scales may be per row or column."""
    left = a.astype(np.int32) - per_row(a_zero_point)
    right = b.astype(np.int32) - b_zero_point.astype(np.int32)
    exact = integer_matmul(left, right, products.integers)
    return requantized(exact, matmul_factor(a_scale, b_scale, y_scale), y_zero_point)


def matmul_factor(a_scale: Array, b_scale: Array, y_scale: Array) -> Array:
    """Returns the factor from sums of products to quantised results, by row and column."""
    rows = a_scale[..., None] if a_scale.ndim == 1 and a_scale.size > 1 else a_scale
    factor: Array = rows.astype(np.float32) * b_scale.astype(np.float32)
    return factor / y_scale.astype(np.float32)


def requantized(sums: Array, factor: Array, zero_point: Array) -> Array:
    """Returns sums of products times `factor`, quantised with `zero_point`."""
    return rounded((sums * factor).astype(np.float32), zero_point, zero_point.dtype)


def centred(tensor: Array, zero_point: Array | None) -> Array:
    """Returns int32 minus the zero point, which is one number or one per output channel."""
    wide = tensor.astype(np.int32)
    if zero_point is None:
        return wide
    if zero_point.size > 1:
        if zero_point.size != len(tensor):
            raise ModelError(f"{zero_point.size} zero points for {len(tensor)} channels")
        return wide - zero_point.astype(np.int32).reshape(-1, *[1] * (tensor.ndim - 1))
    return wide - zero_point.astype(np.int32).reshape(())


def convolve_centred(x: Array, w: Array, slid: Window, group: int) -> Array:
    """Convolves integers exactly into int32, in floats as far as floats are exact."""
    depth = int(np.prod(w.shape[1:]))
    carrier = products.carrier(x, w, depth)
    sums = products.convolve(x.astype(carrier), w.astype(carrier), slid, group)
    return sums.astype(np.int64).astype(np.int32)  # wraps as int32 does


operator("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
operator("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)


@operator("QLinearConv", domain=MICROSOFT)
@parameters_of(qlinear_conv)
def qlinear_conv_1(x: Array, *inputs: Any, channels_last: int = 0, **attributes: Any) -> Array:
    """The standard's QLinearConv; `channels_last` says that channels of x and y are the last axis.

    Weights are (M, C / group, *kernel) in both cases.
    """
    return _channels_first(lambda x: qlinear_conv(x, *inputs, **attributes), x, bool(channels_last))


@operator("QGemm", domain=MICROSOFT)
def qgemm(
    A: Array, a_scale: Array, a_zero_point: Array, B: Array, b_scale: Array, b_zero_point: Array,
    C: Array | None = None, y_scale: Array | None = None, y_zero_point: Array | None = None,
    *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Array:  # fmt: skip
    """alpha A B + C, with C int32 in the product's scale; returns float32 without y_scale."""
    left = A.astype(np.int32) - a_zero_point.astype(np.int32)
    right = B.astype(np.int32)
    right -= columns(b_zero_point, bool(transB)).astype(np.int32)
    sums = integer_matmul(
        left.T if transA else left, right.T if transB else right, products.integers
    )
    if C is not None:
        sums += C
    return gemm_output(sums, np.float32(alpha) * a_scale * b_scale, y_scale, y_zero_point)


def columns(parameter: Array, transposed: bool) -> Array:
    """Reshapes a parameter of B, one number or one per column of the product, to match B."""
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape(-1, 1) if transposed else parameter


def gemm_output(
    sums: Array, step: Array, y_scale: Array | None, y_zero_point: Array | None
) -> Array:
    """Returns the output of QGemm: sums requantised, or as float32 without y_scale."""
    if y_scale is None or y_zero_point is None:
        return (sums * step).astype(np.float32)
    return requantized(sums, step / y_scale, y_zero_point)


def _of_one(compute: Callable[..., Array]) -> Callable[..., Array]:
    """Returns the operator that applies `compute`, with its attributes, to a quantised tensor."""

    @parameters_of(compute)
    def function(
        X: Array, X_scale: Array, X_zero_point: Array | None, Y_scale: Array,
        Y_zero_point: Array | None = None, **attributes: Any,
    ) -> Array:  # fmt: skip
        result = compute(dequantize_linear(X, X_scale, X_zero_point), **attributes)
        return _quantized(result, Y_scale, Y_zero_point, X)

    return function


@operator("QLinearAdd", domain=MICROSOFT)
def qlinear_add(
    A: Array, A_scale: Array, A_zero_point: Array | None, B: Array, B_scale: Array,
    B_zero_point: Array | None, C_scale: Array, C_zero_point: Array | None = None,
) -> Array:  # fmt: skip
    """A + B: each is scaled to quanta of the result, which are added and rounded once.

    The order is that of onnxruntime's kernels on x86-64, which decides about halves: what the zero
    points add, then B, then A, each product in one rounding with its sum. A and B change places
    where A is repeated along the last axis.
    """
    terms = [
        (A.astype(np.float32), _number(A_zero_point), A_scale / C_scale),
        (B.astype(np.float32), _number(B_zero_point), B_scale / C_scale),
    ]
    axes = zip_longest(reversed(A.shape), reversed(B.shape), fillvalue=1)
    if next((own == 1 for own, other in axes if (own, other) != (1, 1)), False):
        terms.reverse()
    (last, last_zero, last_step), (first, first_zero, first_step) = terms
    zeros = _fused(last_zero, last_step, first_zero * first_step)
    total = _fused(first, first_step, _number(C_zero_point) - zeros)
    return rounded(_fused(last, last_step, total), None, A.dtype)


def _number(zero_point: Array | None) -> Array:
    return np.zeros((), np.float32) if zero_point is None else zero_point.astype(np.float32)


def _fused(factor: Array, step: Array, addend: Array) -> Array:
    """Returns factor * step + addend in float32, rounded once; factors have few bits."""
    product = factor.astype(np.float64) * step.astype(np.float64)
    return np.asarray(product + addend, np.float32)


@operator("QLinearMul", domain=MICROSOFT)
def qlinear_mul(
    A: Array, A_scale: Array, A_zero_point: Array | None, B: Array, B_scale: Array,
    B_zero_point: Array | None, C_scale: Array, C_zero_point: Array | None = None,
) -> Array:  # fmt: skip
    """A B: the exact product of integers, scaled to quanta of the result and rounded once."""
    left = A.astype(np.float32) - _number(A_zero_point)
    product = left * (B.astype(np.float32) - _number(B_zero_point))
    return _rounded(product * np.float32(A_scale * B_scale / C_scale), C_zero_point, A.dtype)


@operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    condition: Array, X: Array, x_scale: Array, x_zero_point: Array, Y: Array, y_scale: Array,
    y_zero_point: Array, z_scale: Array, z_zero_point: Array,
) -> Array:  # fmt: skip
    """X where the condition holds, else Y."""
    result = np.where(
        condition,
        dequantize_linear(X, x_scale, x_zero_point),
        dequantize_linear(Y, y_scale, y_zero_point),
    )
    return _quantized(result, z_scale, z_zero_point, X)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(Y_scale: Array, Y_zero_point: Array, *inputs: Array, axis: int) -> Array:
    """Concatenates tensors along `axis`; each input is a tensor, its scale and zero point."""
    if len(inputs) % 3:
        raise ModelError(f"{len(inputs)} inputs are not tensors with a scale and a zero point each")
    triples = zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    parts = [
        _quantized(dequantize_linear(x, s, z), Y_scale, Y_zero_point, x) for x, s, z in triples
    ]
    return np.concatenate(parts, axis)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    X: Array, X_scale: Array, X_zero_point: Array | None, Y_scale: Array,
    Y_zero_point: Array | None = None,
    *, auto_pad: str = "NOTSET", ceil_mode: int = 0, channels_last: int = 0,
    count_include_pad: int = 0, kernel_shape: Sequence[int], pads: Ints = None,
    strides: Ints = None,
) -> Array:  # fmt: skip
    """The mean of each window; a window of the whole image is a QLinearGlobalAveragePool.

    With `count_include_pad` what a last window has beyond the padding counts as zeros too, as in
    onnxruntime, and not as in ONNX since opset 19.
    """
    size = X.shape[1:-1] if channels_last else X.shape[2:]
    if tuple(kernel_shape) == size and not any(pads or ()):
        return qlinear_global_average_pool(
            X, X_scale, X_zero_point, Y_scale, Y_zero_point, channels_last=channels_last
        )
    slid = window(size, kernel_shape, strides, pads, None, auto_pad, ceil_mode)
    sizes = np.array(math.prod(kernel_shape)) if count_include_pad else counts(size, slid, False)
    means = _channels_first(
        lambda x: average(x, slid, sizes),
        dequantize_linear(X, X_scale, X_zero_point), bool(channels_last),
    )  # fmt: skip
    return _rounded(means / Y_scale, Y_zero_point, X.dtype)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    X: Array, X_scale: Array, X_zero_point: Array | None, Y_scale: Array,
    Y_zero_point: Array | None = None,
    *, channels_last: int = 0,
) -> Array:  # fmt: skip
    """The mean of each channel: the exact sum of integers, scaled once."""
    axes = tuple(range(1, X.ndim - 1) if channels_last else range(2, X.ndim))
    zero = np.int64(0) if X_zero_point is None else X_zero_point.astype(np.int64)
    sums = (X.astype(np.int64) - zero).sum(axis=axes, keepdims=True)
    count = np.float32(X.size // max(sums.size, 1))
    step = np.float32(X_scale / np.float32(Y_scale * count))
    return rounded(sums.astype(np.float32) * step, Y_zero_point, X.dtype)


@operator("QLinearReduceMean", domain=MICROSOFT)
@_of_one
def qlinear_reduce_mean(real: Array, *, axes: Ints = None, keepdims: int = 1) -> Array:
    """The mean over `axes` (default: all)."""
    return np.asarray(real.mean(axis=tuple(axes) if axes else None, keepdims=bool(keepdims)))


operator("QLinearLeakyRelu", domain=MICROSOFT)(
    _of_one(lambda real, *, alpha=0.01: leaky_relu(real, alpha=alpha))
)
operator("QLinearSigmoid", domain=MICROSOFT)(_of_one(lambda real: sigmoid(real)))


_PER_ROW = 13
"""The opset since which Softmax adds along its axis alone, and not over all dimensions behind."""
_RESERVE = 5
"""How much less than the largest float32, as a logarithm, the sum of a softmax may be."""


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    X: Array, X_scale: Array, X_zero_point: Array | None, Y_scale: Array,
    Y_zero_point: Array | None = None,
    *, axis: int = -1, opset: int,
) -> Array:  # fmt: skip
    """Softmax of standard version `opset`, its exponentials added one after the other in float32.

    They are those of 0 to 255 steps below the largest number of a row, raised to the end of
    float32. Source: onnxruntime, contrib_ops/cpu/quantization/qlinear_softmax.cc.
    """
    axis %= X.ndim
    moved = np.moveaxis(X, axis, -1) if opset >= _PER_ROW else X
    last = -1 if opset >= _PER_ROW else axis
    rows = moved.reshape(math.prod(moved.shape[:last]), -1)
    scale = float(X_scale.item())
    most = math.log(np.finfo(np.float32).max / np.float32(rows.shape[1]))
    raised = (np.arange(256) - 255 + max(0.0, most - _RESERVE) / scale) * scale
    exponentials: Array = np.exp(raised).astype(np.float32)
    # the largest of a row has the last place, whatever the type
    terms = exponentials[255 - (rows.max(1, keepdims=True).astype(np.int64) - rows)]
    total = np.add.accumulate(terms, axis=1)[:, -1:]
    quanta = terms * np.floor(np.float32(1) / np.float32(Y_scale.item())) / total
    out = rounded(quanta, Y_zero_point, X.dtype).reshape(moved.shape)
    return np.moveaxis(out, -1, axis) if opset >= _PER_ROW else out


def _rounded(quanta: Array, zero_point: Array | None, dtype: np.dtype[Any]) -> Array:
    """Adds the zero point and rounds: a half goes to the even integer of the result.

    QuantizeLinear rounds before it adds, and may return the other neighbour of a half.
    """
    return rounded(np.asarray(quanta + _number(zero_point), np.float32), None, dtype)


def _quantized(real: Array, scale: Array, zero_point: Array | None, like: Array) -> Array:
    """Quantises to the type of the zero point, or of `like` without one."""
    zero = np.zeros((), like.dtype) if zero_point is None else zero_point
    return quantize_linear(real, scale, zero)


def _channels_first(function: Callable[[Array], Array], x: Array, last: bool) -> Array:
    """Applies `function` with channels at axis 1; `last` says that they are the last axis."""
    if not last:
        return function(x)
    return np.moveaxis(function(np.ascontiguousarray(np.moveaxis(x, -1, 1))), 1, -1)
