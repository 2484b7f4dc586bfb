"""Sums without products: element by element (Add, QLinearAdd, CumSum), over windows and axes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tracer import limits
from tracer.accumulators.engine import node_pass
from tracer.accumulators.engine.integer_arithmetic import (
    Integers,
    NodeOperands,
    NoIntegerForm,
    Restore,
    narrow,
)
from tracer.accumulators.engine.sum_runner import Ends, Reduction, SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, computed, lowering
from tracer.accumulators.nodes.matmul import begun_sums
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import parallel, tensors
from tracer.interpreter.numeric.windows import padded, patches, window
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.pooling import counts
from tracer.interpreter.ops.quantized import requantized
from tracer.interpreter.values import Value
from tracer.support.types import Array

_LONGEST = 1 << 13
"""Running sums along an axis, each of which is a row of a matrix: a longer axis takes too long."""
_DIFFERENT_SCALES = "its operands have different scales, so their sum has no unit"
_BLOCK = 1 << 18
"""Numbers that are summed at a time."""
_CHANNELS_ONLY = 2
"""Axes of a tensor of channels without places."""
_LARGEST = (1 << 31) - 1
"""The largest term: terms are integers of at most 32 bits."""
SumsAndDivisor = tuple[Array, Array | int]
"""int64 sums, and the numbers that they are divided by for a mean."""
SumUp = Callable[[Sequence[Value], SumRunner, Integers], SumsAndDivisor]
"""Sums up the integers of an input of a node; takes all inputs, too."""


@lowering("Add", "Sum", "Mean")
def add(operands: NodeOperands) -> ComputeSums:
    """Tensors of the same step, in the order of the inputs; Mean divides the sums."""
    return _addition(operands, (1,) * len(operands.node.inputs))


@lowering("Sub")
def subtract(operands: NodeOperands) -> ComputeSums:
    """The first tensor, then minus the second, of the same step."""
    return _addition(operands, (1, -1))


@lowering("QLinearAdd", domain=MICROSOFT)
def qlinear_add(operands: NodeOperands) -> ComputeSums:
    """Two tensors of the same scale; the output is their sum, quantised again."""
    names, scope = operands.node.inputs, operands.node.scope
    first, second = (operands.scales.value(names[i], scope) for i in (1, 4))
    if first is None or second is None or not np.allclose(first, second, 1e-6, 0):
        raise NoIntegerForm(_DIFFERENT_SCALES)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums = _sums(runner, [operands.centred(index, inputs) for index in (0, 3)])
        return computed(sums, requantize(inputs, 6, 1))

    return compute


@lowering("CumSum")
def cumulative_sum(operands: NodeOperands) -> ComputeSums:
    """Each output is a sum of its own: of the terms up to it, or from the end with `reverse`.

    Rows are multiplied with a triangle of ones.
    """
    x = operands.activations(0)
    step = x.steps(None)
    backwards, exclusive = (operands.attributes.get(k, 0) for k in ("reverse", "exclusive"))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        numbers, axis = x.integers(inputs[0]), int(np.reshape(inputs[1], ()))
        terms = np.moveaxis(numbers.values, axis, -1)
        ordered = replace(numbers, numbers=terms[..., ::-1] if backwards else terms, shift=0)
        length = terms.shape[-1]
        if length > _LONGEST:
            raise NoIntegerForm(f"its axis has {length:,} elements; up to {_LONGEST:,} are narrow")
        limits.allow((length, length), np.int16)
        taken = np.triu(np.ones((length, length), np.int16), int(bool(exclusive)))
        runner.begin(Reduction(length, Terms(length), (ordered.low, ordered.high), (0, 1), taken.T))
        rows = replace(ordered, numbers=tensors.flat(ordered.numbers, 0, terms.ndim - 1))
        sums = begun_sums(runner, rows, Integers(taken, 0, 1, constant=True)).reshape(terms.shape)
        sums = np.moveaxis(sums[..., ::-1] if backwards else sums, -1, axis)
        return computed(sums, lambda sums: (sums * step).astype(operands.float_type(inputs[0])))

    return compute


def _addition(operands: NodeOperands, signs: Sequence[int]) -> ComputeSums:
    """Tensors of the same step, each with its sign."""
    if "axis" in operands.attributes:
        raise NoIntegerForm("its second operand is repeated along an axis, as before opset 7")
    terms = [operands.activations(index) for index in range(len(signs))]
    step = terms[0].steps(None)
    if not all(np.isclose(step, each.steps(None), 1e-6, 0) for each in terms):
        raise NoIntegerForm(_DIFFERENT_SCALES)
    divisor = len(terms) if operands.node.op_type == "Mean" else 1

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        numbers = [each.integers(x) for each, x in zip(terms, inputs, strict=True)]
        for place, sign in enumerate(signs):
            if sign < 0:
                n = numbers[place]
                negative = narrow(-n.values.astype(np.int32))
                numbers[place] = Integers(negative, -n.high, -n.low)
        sums = _sums(runner, numbers)
        return computed(sums, lambda sums: (sums * step / divisor).astype(inputs[0].dtype))

    return compute


def _sums(runner: SumRunner, terms: Sequence[Integers]) -> Array:
    """The sums, int64, of tensors, which numpy broadcasts."""
    stacked = np.stack(np.broadcast_arrays(*(each.values for each in terms)), axis=-1)
    lows, highs = tuple(each.low for each in terms), tuple(each.high for each in terms)
    joined = Integers(stacked, min(lows), max(highs))
    return sums_over(runner, joined, (stacked.ndim - 1,), ranges=(lows, highs))


@lowering("AveragePool", "GlobalAveragePool", "ReduceSum", "ReduceMean")
def mean(operands: NodeOperands) -> ComputeSums:
    """Sums of windows, of channels, or over axes, in row-major order; all but ReduceSum divide."""
    x, sum_up = operands.activations(0), _sum_up(operands)
    step, is_mean = x.steps(None), operands.node.op_type != "ReduceSum"

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums, count = sum_up(inputs, runner, x.integers(inputs[0]))
        kind, divisor = operands.float_type(inputs[0]), count if is_mean else 1
        return computed(sums, lambda sums: (sums * step / divisor).astype(kind))

    return compute


@lowering("LpPool", "GlobalLpPool", "ReduceL1", "ReduceL2", "ReduceSumSquare")
def powers(operands: NodeOperands) -> ComputeSums:
    """The same of magnitudes, or of squares; the output may be the square root of the sums."""
    x, sum_up = operands.activations(0), _sum_up(operands)
    name, power = operands.node.op_type, operands.attributes.get("p", 2)
    if not name.endswith("LpPool"):
        power = 1 if name == "ReduceL1" else 2
    if power not in (1, 2):
        raise NoIntegerForm(f"p is {power:g}, and only magnitudes (1) and squares (2) are integers")
    has_root = power == 2 and name != "ReduceSumSquare"
    step, largest = x.steps(None) ** power, max(map(abs, x.range)) ** power
    if largest > _LARGEST:
        raise NoIntegerForm(f"its terms reach {largest}, and terms have at most 32 bits")

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        terms = x.integers(inputs[0])
        numbers = narrow(np.abs(terms.values.astype(np.int64)) ** power)
        ends = max(terms.low, -terms.high, 0), max(-terms.low, terms.high)
        of_powers = Integers(numbers, ends[0] ** power, ends[1] ** power)
        sums, _ = sum_up(inputs, runner, of_powers)
        kind = operands.float_type(inputs[0])
        return computed(sums, lambda s: (np.sqrt(s * step) if has_root else s * step).astype(kind))

    return compute


@lowering("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MICROSOFT)
def quantized_mean(operands: NodeOperands) -> ComputeSums:
    """Sums of windows, or of channels; the output is their mean, quantised again."""
    if operands.attributes.get("channels_last", 0):
        raise NoIntegerForm("its channels are the last axis, as only optimised graphs have it")
    sum_up = _sum_up(operands)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums, divisor = sum_up(inputs, runner, operands.centred(0, inputs))
        return computed(sums, requantize(inputs, 3, divisor))

    return compute


def _sum_up(operands: NodeOperands) -> SumUp:
    """Which numbers an operator sums: those of a channel, of a window, or along axes."""
    name = operands.node.op_type

    def sum_channels(_: Sequence[Value], runner: SumRunner, x: Integers) -> SumsAndDivisor:
        places = x.numbers.shape[_CHANNELS_ONLY:]
        if not math.prod(places) or not places:
            axes = tuple(range(_CHANNELS_ONLY, x.numbers.ndim))
            return np.expand_dims(sums_over(runner, x, axes), axes), math.prod(places)
        return _pool_sums(runner, x, {"kernel_shape": places})

    if "Global" in name:
        return sum_channels
    if name.endswith("Pool"):
        return lambda inputs, runner, x: _pool_sums(runner, x, operands.attributes)
    return partial(_sum_axes, operands)


def _sum_axes(
    operands: NodeOperands, inputs: Sequence[Value], runner: SumRunner, x: Integers
) -> SumsAndDivisor:
    """The axes are an attribute, or an input since opset 13 or 18."""
    options, rank = operands.attributes, x.numbers.ndim
    given = options.get("axes")
    if given is None and operands.node.has_input(1):
        given = inputs[1].tolist()
    axes = tuple(sorted(tensors.nonnegative_axis(int(axis), rank) for axis in given or ()))
    if not given and not options.get("noop_with_empty_axes", 0):
        axes = tuple(range(rank))
    sums = sums_over(runner, x, axes)
    if options.get("keepdims", 1):
        sums = np.expand_dims(sums, axes)
    return sums, math.prod(x.numbers.shape[axis] for axis in axes)


def _pool_sums(runner: SumRunner, x: Integers, options: Mapping[str, Any]) -> tuple[Array, Array]:
    """The sum, int64, of each window that the attributes describe, and its divisor."""
    size = x.numbers.shape[2:]
    windows = window(
        size, options["kernel_shape"], options.get("strides"), options.get("pads"),
        options.get("dilations"), options.get("auto_pad", "NOTSET"), options.get("ceil_mode", 0),
    )  # fmt: skip
    divisors = counts(size, windows, bool(options.get("count_include_pad", 0)))
    has_zeros = any(windows.before + windows.after)
    images = node_pass.PaddedImages.of(x, windows)
    if images is not None and x.numbers.size:
        channels, shape = x.numbers.shape[1], (*x.numbers.shape[:2], *windows.out)
        terms, ends = Terms(math.prod(windows.kernel)), (x.low, x.high)
        reduction = Reduction(channels, terms, ends, (1, 1), padded=has_zeros)
        sums = gathered_sums(runner, reduction, images.columns(channels, channels), shape)
        if sums is not None:
            return sums, divisors
    view = patches(padded(x.numbers, windows, x.shift), windows)
    kernel = tuple(range(2, 2 + len(size)))
    return sums_over(runner, replace(x, numbers=view), kernel, has_zeros), divisors


def requantize(inputs: Sequence[Value], scale: int, divisor: Array | int) -> Restore:
    """Sums in the scale of input 1, divided, as integers in the `scale` of the output, an index.

    The zero point follows the scale; it is 0 of the input's type if it is left out.
    """
    factor = inputs[1] / inputs[scale] / divisor
    zero = inputs[scale + 1] if len(inputs) > scale + 1 else None
    zero = np.zeros((), inputs[0].dtype) if zero is None else np.asarray(zero)
    return lambda sums: requantized(sums, factor, zero)


def sums_over(
    runner: SumRunner, x: Integers, axes: tuple[int, ...], has_zeros: bool = False,
    ranges: tuple[Ends, Ends] | None = None,
) -> Array:  # fmt: skip
    """Sums, int64, over `axes`, which are removed; axis 1 is the channel if it stays.

    `has_zeros` says that numbers may be 0 even if their range lacks 0. `ranges` are the least and
    the greatest numbers where they differ by term.
    """
    rank = x.numbers.ndim
    channel = () if 1 in axes or rank < 2 else (1,)
    inner = tuple(axis for axis in range(rank) if axis not in (*axes, *channel))
    turned = x.numbers.transpose(*axes, *channel, *inner)
    if not channel:
        turned = np.expand_dims(turned, len(axes))
    depth, shape = math.prod(turned.shape[: len(axes)]), turned.shape[len(axes) :]
    matrices = turned.reshape(depth, shape[0], math.prod(shape[1:]))
    columns = node_pass.from_first_axis(replace(x, numbers=matrices))
    ends = (x.low, x.high) if ranges is None else ranges
    reduction = Reduction(shape[0], Terms(depth), ends, (1, 1), padded=has_zeros)
    sums = gathered_sums(runner, reduction, columns, (1, *shape))
    if sums is None:  # in blocks of channels
        values = replace(x, numbers=turned).values
        out = np.empty((shape[0], math.prod(shape[1:])), np.int64)
        parts = parallel.pieces(shape[0], max(_BLOCK // max(depth * out.shape[1], 1), 1))

        def block(index: int) -> None:
            part = parts[index]
            some = values[(slice(None),) * len(axes) + (part,)]
            numbers = some.reshape(depth, part.stop - part.start, out.shape[1])
            runner.sum_first_axis(numbers, part, out[part])

        parallel.run_blocks(len(parts), block)
        sums = out.reshape(1, *shape)
    return np.moveaxis(sums[0], 0, sum(axis < 1 for axis in inner)) if channel else sums[0, 0]


def gathered_sums(
    runner: SumRunner, reduction: Reduction, columns: node_pass.ColumnSource, shape: tuple[int, ...]
) -> Array | None:
    """The sums of columns of each channel, in one pass; None where no kernel supports it."""
    runner.begin(reduction)
    ones = np.ones((reduction.channels, reduction.terms.count), np.int16)
    sums, out = (
        node_pass.Gathered(ones, columns, None, reduction.terms),
        tensors.empty(shape, np.int64),
    )
    return out if runner.sum_gathered(sums, out) else None
