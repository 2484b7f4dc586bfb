"""Sums without products: average poolings, reductions and Add, of scaled or quantised tensors."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.accumulators.engine.column_source import ColumnSource, PaddedImages, from_first_axis
from tracer.accumulators.engine.node_operands import Integers, NodeOperands, UnfitError
from tracer.accumulators.engine.node_output import Restore
from tracer.accumulators.engine.sum_runner import Gathered, Reduction, SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, computed, lowering
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.interpreter.numeric.axes import nonnegative_axis
from tracer.interpreter.numeric.windows import padded, patches, window
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.ops.integer import requantized
from tracer.interpreter.ops.pooling import counts
from tracer.interpreter.values import Value
from tracer.support.types import Array

_BLOCK = 1 << 18
"""Numbers that are summed at a time."""

_CHANNELS_ONLY = 2
"""Axes of a tensor of channels without places."""
_DIFFERENT_SCALES = "its operands have different scales, so their sum has no unit"

SumsAndDivisor = tuple[Array, Array | int]
"""int64 sums, and the numbers that they are divided by for a mean."""


@lowering("AveragePool")
def average_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of each window, kernel positions in row-major order; the output is its mean."""
    return _mean(operands, lambda inputs, runner, x: _pool_sums(runner, x, operands.attributes))


@lowering("GlobalAveragePool")
def global_average_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of each channel; the output is its mean."""
    return _mean(operands, lambda inputs, runner, x: _global_pool_sums(runner, x))


@lowering("ReduceSum", "ReduceMean")
def reduce(operands: NodeOperands) -> ComputeSums:
    """Sums over axes in row-major order; ReduceMean divides the sums."""
    mean = operands.node.op_type == "ReduceMean"

    def sums_over_axes(inputs: Sequence[Value], runner: SumRunner, x: Integers) -> SumsAndDivisor:
        axes = _axes(operands, inputs)
        sums = _sums_over(runner, x, axes, False)
        if operands.attributes.get("keepdims", 1):
            sums = np.expand_dims(sums, axes)
        return sums, _count(x.numbers, axes) if mean else 1

    return _mean(operands, sums_over_axes)


@lowering("Add")
def add(operands: NodeOperands) -> ComputeSums:
    """Two tensors of the same step."""
    a, b = operands.activations(0), operands.activations(1)
    step = a.steps(None)
    if not np.isclose(step, b.steps(None), 1e-6, 0):
        raise UnfitError(_DIFFERENT_SCALES)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums = _addition_sums(runner, a.integers(inputs[0]), b.integers(inputs[1]))
        return computed(sums, lambda sums: (sums * step).astype(inputs[0].dtype))

    return compute


@lowering("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of each window; the output is its mean, quantised again."""
    return _quantized_mean(operands, lambda runner, x: _pool_sums(runner, x, operands.attributes))


@lowering("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of each channel; the output is its mean, quantised again."""
    return _quantized_mean(operands, _global_pool_sums)


@lowering("QLinearAdd", domain=DOMAIN)
def qlinear_add(operands: NodeOperands) -> ComputeSums:
    """Two tensors of the same scale; the output is their sum, quantised again."""
    names, scope = operands.node.inputs, operands.node.scope
    first, second = (operands.scales.value(names[i], scope) for i in (1, 4))
    if first is None or second is None or not np.allclose(first, second, 1e-6, 0):
        raise UnfitError(_DIFFERENT_SCALES)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums = _addition_sums(runner, *(operands.centred(index, inputs) for index in (0, 3)))
        return computed(sums, _requantize(inputs, 6, 1))

    return compute


def _pool_sums(runner: SumRunner, x: Integers, options: Mapping[str, Any]) -> tuple[Array, Array]:
    """The sum, int64, of each window that the attributes describe, and its divisor."""
    size = x.numbers.shape[2:]
    windows = window(
        size, options["kernel_shape"], options.get("strides"), options.get("pads"),
        options.get("dilations"), options.get("auto_pad", "NOTSET"), options.get("ceil_mode", 0),
    )  # fmt: skip
    divisors = counts(size, windows, bool(options.get("count_include_pad", 0)))
    has_zeros = any(windows.before + windows.after)
    images = PaddedImages.of(x, windows)
    if images is not None:
        channels, shape = x.numbers.shape[1], (*x.numbers.shape[:2], *windows.out)
        reduction = _reduction(x, channels, math.prod(windows.kernel), has_zeros)
        sums = _gathered_sums(runner, reduction, images.columns(channels, channels), shape)
        if sums is not None:
            return sums, divisors
    view = patches(padded(x.numbers, windows, x.shift), windows)
    kernel = tuple(range(2, 2 + len(size)))
    return _sums_over(runner, replace(x, numbers=view), kernel, has_zeros), divisors


def _global_pool_sums(runner: SumRunner, x: Integers) -> SumsAndDivisor:
    """The sum, int64, of each channel, and its divisor."""
    if x.numbers.ndim == _CHANNELS_ONLY:
        return _sums_over(runner, x, (), False), 1
    return _pool_sums(runner, x, {"kernel_shape": x.numbers.shape[2:]})


def _addition_sums(runner: SumRunner, left: Integers, right: Integers) -> Array:
    """The sums, int64, of two tensors, which numpy broadcasts."""
    both = np.stack(np.broadcast_arrays(left.values, right.values), axis=-1)
    low, high = min(left.low, right.low), max(left.high, right.high)
    return _sums_over(runner, Integers(both, low, high), (both.ndim - 1,), False)


def _mean(
    operands: NodeOperands,
    sum_up: Callable[[Sequence[Value], SumRunner, Integers], SumsAndDivisor],
) -> ComputeSums:
    """Input 0 summed by `sum_up`; the output is the sums times the step, divided."""
    x = operands.activations(0)
    step = x.steps(None)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums, divisor = sum_up(inputs, runner, x.integers(inputs[0]))
        kind = operands.float_type(inputs[0])
        return computed(sums, lambda sums: (sums * step / divisor).astype(kind))

    return compute


def _quantized_mean(
    operands: NodeOperands, sum_up: Callable[[SumRunner, Integers], SumsAndDivisor]
) -> ComputeSums:
    """A quantised input 0 summed by `sum_up`; the output is divided and quantised again."""
    if operands.attributes.get("channels_last", 0):
        raise UnfitError("its channels are the last axis, as only optimised graphs have it")

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums, divisor = sum_up(runner, operands.centred(0, inputs))
        return computed(sums, _requantize(inputs, 3, divisor))

    return compute


def _requantize(inputs: Sequence[Value], scale: int, divisor: Array | int) -> Restore:
    """Sums in the scale of input 1, divided, as integers in the `scale` of the output, an index.

    The zero point follows the scale; it is 0 of the input's type if it is left out.
    """
    factor = inputs[1] / inputs[scale] / divisor
    zero = inputs[scale + 1] if len(inputs) > scale + 1 else None
    zero = np.zeros((), inputs[0].dtype) if zero is None else np.asarray(zero)
    return lambda sums: requantized(sums, factor, zero)


def _sums_over(runner: SumRunner, x: Integers, axes: tuple[int, ...], has_zeros: bool) -> Array:
    """Sums, int64, over `axes`, which are removed; axis 1 is the channel if it stays.

    `has_zeros` says that numbers may be 0 even if their range lacks 0.
    """
    rank = x.numbers.ndim
    channel = () if 1 in axes or rank < 2 else (1,)
    inner = tuple(axis for axis in range(rank) if axis not in (*axes, *channel))
    turned = x.numbers.transpose(*axes, *channel, *inner)
    if not channel:
        turned = np.expand_dims(turned, len(axes))
    depth, shape = math.prod(turned.shape[: len(axes)]), turned.shape[len(axes) :]
    matrices = turned.reshape(depth, shape[0], math.prod(shape[1:]))
    columns = from_first_axis(replace(x, numbers=matrices))
    reduction = _reduction(x, shape[0], depth, has_zeros)
    sums = _gathered_sums(runner, reduction, columns, (1, *shape))
    if sums is None:
        values = replace(x, numbers=turned).values
        sums = _sums_by_channel(runner, values, len(axes))[None]
    return np.moveaxis(sums[0], 0, sum(axis < 1 for axis in inner)) if channel else sums[0, 0]


def _reduction(x: Integers, channels: int, depth: int, has_zeros: bool) -> Reduction:
    return Reduction(channels, Terms(depth), (x.low, x.high), (1, 1), padded=has_zeros)


def _gathered_sums(
    runner: SumRunner, reduction: Reduction, columns: ColumnSource, shape: tuple[int, ...]
) -> Array | None:
    """The sums of columns of each channel, in one pass; None where no kernel supports it."""
    runner.begin(reduction)
    ones = np.ones((reduction.channels, reduction.terms.count), np.int16)
    sums, out = Gathered(ones, columns, None, reduction.terms), buffer_pool.empty(shape, np.int64)
    return out if runner.sum_gathered(sums, out) else None


def _sums_by_channel(runner: SumRunner, values: Array, axes: int) -> Array:
    """Sums (C, ...) over the first `axes` axes of `values` (..., C, ...), in blocks of channels."""
    depth, channels = math.prod(values.shape[:axes]), values.shape[axes]
    out = np.empty((channels, math.prod(values.shape[axes + 1 :])), np.int64)
    parts = parallel.pieces(channels, max(_BLOCK // max(depth * out.shape[1], 1), 1))

    def block(index: int) -> None:
        part = parts[index]
        numbers = values[(slice(None),) * axes + (part,)].reshape(depth, -1, out.shape[1])
        runner.sum_first_axis(numbers, part, out[part])

    parallel.run_blocks(len(parts), block)
    return out.reshape(channels, *values.shape[axes + 1 :])


def _count(x: Array, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _axes(operands: NodeOperands, inputs: Sequence[Value]) -> tuple[int, ...]:
    """The axes that are summed over: an attribute, or an input since opset 13 or 18."""
    axes = operands.attributes.get("axes")
    if axes is None and operands.has_input(1):
        axes = inputs[1].tolist()
    rank = inputs[0].ndim
    if not axes:
        return () if operands.attributes.get("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(nonnegative_axis(int(axis), rank) for axis in axes))
