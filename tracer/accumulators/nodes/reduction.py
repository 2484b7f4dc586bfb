"""Sums over windows and axes: poolings, reductions and norms, of scaled or quantised tensors."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.accumulators.engine.axis_sums import gathered_sums, reduction_of, sums_over
from tracer.accumulators.engine.column_source import PaddedImages
from tracer.accumulators.engine.node_operands import Integers, NodeOperands, NoIntegerForm, narrow
from tracer.accumulators.engine.node_output import Restore
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, computed, lowering
from tracer.interpreter.numeric.tensors import nonnegative_axis
from tracer.interpreter.numeric.windows import padded, patches, window
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.pooling import counts
from tracer.interpreter.ops.quantized import requantized
from tracer.interpreter.values import Value
from tracer.support.types import Array

_CHANNELS_ONLY = 2
"""Axes of a tensor of channels without places."""
_LARGEST = (1 << 31) - 1
"""The largest term: terms are integers of at most 32 bits."""

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
        sums, count = _reduced(operands, inputs, runner, x)
        return sums, count if mean else 1

    return _mean(operands, sums_over_axes)


@lowering("ReduceL1", "ReduceL2", "ReduceSumSquare")
def reduce_powers(operands: NodeOperands) -> ComputeSums:
    """Sums of magnitudes, or of squares, over axes in row-major order; ReduceL2 takes the root."""
    power = 1 if operands.node.op_type == "ReduceL1" else 2

    def sums_over_axes(inputs: Sequence[Value], runner: SumRunner, x: Integers) -> Array:
        return _reduced(operands, inputs, runner, x)[0]

    return _of_powers(operands, power, operands.node.op_type == "ReduceL2", sums_over_axes)


@lowering("LpPool", "GlobalLpPool")
def lp_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of magnitudes, or of squares, in each window; of squares the output is the root."""
    power = operands.attributes.get("p", 2)
    if power not in (1, 2):
        raise NoIntegerForm(f"p is {power:g}, and only magnitudes (1) and squares (2) are integers")
    is_global = operands.node.op_type == "GlobalLpPool"

    def sums_of_windows(inputs: Sequence[Value], runner: SumRunner, x: Integers) -> Array:
        pooled = _global_pool_sums(runner, x) if is_global else _pool_sums(
            runner, x, operands.attributes
        )  # fmt: skip
        return pooled[0]

    return _of_powers(operands, int(power), power == 2, sums_of_windows)


@lowering("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of each window; the output is its mean, quantised again."""
    return _quantized_mean(operands, lambda runner, x: _pool_sums(runner, x, operands.attributes))


@lowering("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of each channel; the output is its mean, quantised again."""
    return _quantized_mean(operands, _global_pool_sums)


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
    if images is not None and x.numbers.size:
        channels, shape = x.numbers.shape[1], (*x.numbers.shape[:2], *windows.out)
        reduction = reduction_of(x, channels, math.prod(windows.kernel), has_zeros)
        sums = gathered_sums(runner, reduction, images.columns(channels, channels), shape)
        if sums is not None:
            return sums, divisors
    view = patches(padded(x.numbers, windows, x.shift), windows)
    kernel = tuple(range(2, 2 + len(size)))
    return sums_over(runner, replace(x, numbers=view), kernel, has_zeros), divisors


def _global_pool_sums(runner: SumRunner, x: Integers) -> SumsAndDivisor:
    """The sum, int64, of each channel, and its divisor."""
    places = x.numbers.shape[_CHANNELS_ONLY:]
    if not math.prod(places) or not places:
        axes = tuple(range(_CHANNELS_ONLY, x.numbers.ndim))
        return np.expand_dims(sums_over(runner, x, axes), axes), math.prod(places)
    return _pool_sums(runner, x, {"kernel_shape": x.numbers.shape[2:]})


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


def _of_powers(
    operands: NodeOperands, power: int, has_root: bool,
    sum_up: Callable[[Sequence[Value], SumRunner, Integers], Array],
) -> ComputeSums:  # fmt: skip
    """Magnitudes or squares of input 0, summed by `sum_up`; the output may be the square root."""
    x = operands.activations(0)
    step = x.steps(None) ** power
    largest = max(map(abs, x.range)) ** power
    if largest > _LARGEST:
        raise NoIntegerForm(f"its terms reach {largest}, and terms have at most 32 bits")

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums = sum_up(inputs, runner, _powers(x.integers(inputs[0]), power))
        kind = operands.float_type(inputs[0])
        return computed(sums, lambda s: (np.sqrt(s * step) if has_root else s * step).astype(kind))

    return compute


def _powers(x: Integers, power: int) -> Integers:
    """The magnitudes of integers to the first or the second power."""
    ends = max(x.low, -x.high, 0), max(-x.low, x.high)
    numbers = np.abs(x.values.astype(np.int64)) ** power
    return Integers(narrow(numbers), ends[0] ** power, ends[1] ** power)


def _quantized_mean(
    operands: NodeOperands, sum_up: Callable[[SumRunner, Integers], SumsAndDivisor]
) -> ComputeSums:
    """A quantised input 0 summed by `sum_up`; the output is divided and quantised again."""
    if operands.attributes.get("channels_last", 0):
        raise NoIntegerForm("its channels are the last axis, as only optimised graphs have it")

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums, divisor = sum_up(runner, operands.centred(0, inputs))
        return computed(sums, requantize(inputs, 3, divisor))

    return compute


def requantize(inputs: Sequence[Value], scale: int, divisor: Array | int) -> Restore:
    """Sums in the scale of input 1, divided, as integers in the `scale` of the output, an index.

    The zero point follows the scale; it is 0 of the input's type if it is left out.
    """
    factor = inputs[1] / inputs[scale] / divisor
    zero = inputs[scale + 1] if len(inputs) > scale + 1 else None
    zero = np.zeros((), inputs[0].dtype) if zero is None else np.asarray(zero)
    return lambda sums: requantized(sums, factor, zero)


def _reduced(
    operands: NodeOperands, inputs: Sequence[Value], runner: SumRunner, x: Integers
) -> tuple[Array, int]:
    """The sums, int64, over the axes that the node names, and the number of their terms."""
    axes = _axes(operands, inputs)
    sums = sums_over(runner, x, axes)
    if operands.attributes.get("keepdims", 1):
        sums = np.expand_dims(sums, axes)
    return sums, _count(x.numbers, axes)


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
