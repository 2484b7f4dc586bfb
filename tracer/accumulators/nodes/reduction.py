"""Sums without products: poolings that average, ReduceSum, ReduceMean and Add."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.accumulators.engine.node_operands import Integers, NodeOperands, UnfitError
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes import Summing, Sums, lowering
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.axes import nonnegative_axis
from tracer.interpreter.numeric.windows import padded, patches, window
from tracer.interpreter.ops.pooling import counts
from tracer.interpreter.values import Value
from tracer.support.types import Array

_BLOCK = 1 << 18
"""Numbers that are summed at a time."""


@lowering("AveragePool")
def average_pool(site: NodeOperands) -> Summing:
    """The sum of each window, kernel positions in row-major order, then its mean."""
    x = site.inputs(0)
    step = x.steps(None)

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        made, divisor = pooled(meter, x.integers(inputs[0]), site.attributes)
        return Sums(made, lambda sums: (sums * step / divisor).astype(inputs[0].dtype))

    return compute


@lowering("GlobalAveragePool")
def global_average_pool(site: NodeOperands) -> Summing:
    """The sum of each channel, then its mean."""
    x = site.inputs(0)
    step = x.steps(None)

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        made, divisor = pooled_globally(meter, x.integers(inputs[0]))
        return Sums(made, lambda sums: (sums * step / divisor).astype(inputs[0].dtype))

    return compute


@lowering("ReduceSum", "ReduceMean")
def reduce(site: NodeOperands) -> Summing:
    """Sums over axes, row-major; the mean is taken of the sum."""
    x = site.inputs(0)
    step = x.steps(None)
    mean = site.node.op_type == "ReduceMean"

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        axes = _axes(site, inputs)
        made = _over(meter, x.integers(inputs[0]), axes, False)
        divisor = _count(inputs[0], axes) if mean else 1
        if site.attributes.get("keepdims", 1):
            made = np.expand_dims(made, axes)
        return Sums(made, lambda sums: (sums * step / divisor).astype(inputs[0].dtype))

    return compute


@lowering("Add")
def add(site: NodeOperands) -> Summing:
    """Two tensors of the same step."""
    a, b = site.inputs(0), site.inputs(1)
    step = a.steps(None)
    if not np.isclose(step, b.steps(None), 1e-6, 0):
        raise UnfitError("its operands have different scales, so their sum has no unit")

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        made = added(meter, a.integers(inputs[0]), b.integers(inputs[1]))
        return Sums(made, lambda sums: (sums * step).astype(inputs[0].dtype))

    return compute


def pooled(meter: SumRunner, numbers: Integers, options: Mapping[str, Any]) -> tuple[Array, Array]:
    """The sum, int64, of each window that the attributes describe, and what to divide it by."""
    size = numbers.values.shape[2:]
    slid = window(
        size, options["kernel_shape"], options.get("strides"), options.get("pads"),
        options.get("dilations"), options.get("auto_pad", "NOTSET"), options.get("ceil_mode", 0),
    )  # fmt: skip
    kernel = tuple(range(2, 2 + len(size)))
    view = patches(padded(numbers.values, slid), slid)
    made = _over(meter, replace(numbers, values=view), kernel, any(slid.before + slid.after))
    return made, counts(size, slid, bool(options.get("count_include_pad", 0)))


def pooled_globally(meter: SumRunner, numbers: Integers) -> tuple[Array, int]:
    """The sum, int64, of each channel, and what to divide it by."""
    axes = tuple(range(2, numbers.values.ndim))
    made = _over(meter, numbers, axes, False)
    return made.reshape(*made.shape, *[1] * len(axes)), _count(numbers.values, axes)


def added(meter: SumRunner, left: Integers, right: Integers) -> Array:
    """The sums, int64, of two tensors, which numpy broadcasts."""
    both = np.stack(np.broadcast_arrays(left.values, right.values), axis=-1)
    low, high = min(left.low, right.low), max(left.high, right.high)
    return _over(meter, Integers(both, low, high), (both.ndim - 1,), False)


def _over(meter: SumRunner, numbers: Integers, axes: tuple[int, ...], zeros: bool) -> Array:
    """Sums, int64, over `axes`, which go away; axis 1 is the channel if it stays.

    `zeros` says that there are zeros among the numbers whatever their range.
    """
    values = numbers.values
    channel = () if 1 in axes or values.ndim < 2 else (1,)
    inner = tuple(axis for axis in range(values.ndim) if axis not in (*axes, *channel))
    turned = values.transpose(*axes, *channel, *inner)
    if not channel:
        turned = np.expand_dims(turned, len(axes))
    depth = math.prod(turned.shape[: len(axes)])
    range_ = numbers.low, numbers.high
    meter.begin(Reduction(turned.shape[len(axes)], Terms(depth), range_, (1, 1), padded=zeros))
    made = _summed(meter, turned, len(axes))
    return np.moveaxis(made, 0, sum(axis < 1 for axis in inner)) if channel else made[0]


def _summed(meter: SumRunner, values: Array, axes: int) -> Array:
    """Sums (C, ...) over the first `axes` axes of `values` (..., C, ...), some channels a time."""
    depth, channels = math.prod(values.shape[:axes]), values.shape[axes]
    out = np.empty((channels, math.prod(values.shape[axes + 1 :])), np.int64)
    parts = parallel.pieces(channels, max(_BLOCK // max(depth * out.shape[1], 1), 1))

    def block(index: int) -> None:
        taken = values[(slice(None),) * axes + (parts[index],)]
        meter.totals(taken.reshape(depth, -1, out.shape[1]), parts[index], out[parts[index]])

    parallel.run_blocks(len(parts), block)
    return out.reshape(channels, *values.shape[axes + 1 :])


def _count(x: Array, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _axes(site: NodeOperands, inputs: Sequence[Value]) -> tuple[int, ...]:
    """The axes that are summed over: an attribute, or an input since opset 13 or 18."""
    given = site.attributes.get("axes")
    if given is None and site.given(1):
        given = inputs[1].tolist()
    rank = inputs[0].ndim
    if not given:
        return () if site.attributes.get("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(nonnegative_axis(int(axis), rank) for axis in given))
