"""Sums of integers over axes of a tensor, without weights."""

import math
from dataclasses import replace

import numpy as np

from tracer.accumulators.engine.column_source import ColumnSource, from_first_axis
from tracer.accumulators.engine.node_operands import Integers
from tracer.accumulators.engine.sum_runner import Ends, Gathered, Reduction, SumRunner
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.types import Array

_BLOCK = 1 << 18
"""Numbers that are summed at a time."""


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
    columns = from_first_axis(replace(x, numbers=matrices))
    reduction = reduction_of(x, shape[0], depth, has_zeros, ranges)
    sums = gathered_sums(runner, reduction, columns, (1, *shape))
    if sums is None:
        values = replace(x, numbers=turned).values
        sums = _sums_by_channel(runner, values, len(axes))[None]
    return np.moveaxis(sums[0], 0, sum(axis < 1 for axis in inner)) if channel else sums[0, 0]


def reduction_of(
    x: Integers, channels: int, depth: int, has_zeros: bool,
    ranges: tuple[Ends, Ends] | None = None,
) -> Reduction:  # fmt: skip
    """Returns the reduction of `depth` numbers to a sum, for each of some channels."""
    ends = (x.low, x.high) if ranges is None else ranges
    return Reduction(channels, Terms(depth), ends, (1, 1), padded=has_zeros)


def gathered_sums(
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
        some = values[(slice(None),) * axes + (part,)]
        numbers = some.reshape(depth, part.stop - part.start, out.shape[1])
        runner.sum_first_axis(numbers, part, out[part])

    parallel.run_blocks(len(parts), block)
    return out.reshape(channels, *values.shape[axes + 1 :])
