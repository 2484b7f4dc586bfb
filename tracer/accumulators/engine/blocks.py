"""Blocks of dot products: chooses the kernel, and runs it on blocks of rows and columns."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.accumulators.engine import oracle, tile_sums
from tracer.accumulators.engine.matrices import LIMIT, Matrices
from tracer.accumulators.engine.programs import (
    Program,
    products_may_change,
    program,
    sum_by_program,
)
from tracer.accumulators.engine.sum_lanes import SumLanes
from tracer.accumulators.engine.tile_sums import Factors
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.spec.orders.sorted import Sorted
from tracer.accumulators.statistics.sums import Clipped, UnlimitedSums
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.types import Array

_ORACLE = 1 << 20
"""Products that the oracle writes out at a time."""


def observed(matrices: Matrices, terms: Terms, accumulator: Accumulator) -> UnlimitedSums:
    """Sums without a range and their extremes; the bias is first or last, as the accumulator's."""
    plan = _plan(terms, accumulator)
    if plan is None:
        return _by_oracle(matrices, terms, accumulator, oracle.observe, UnlimitedSums)
    final, low, high = (buffer_pool.empty(matrices.shape, np.int64) for _ in range(3))
    if not final.size:
        return UnlimitedSums(final, low, high)
    clips = None if plan.has_one_width else np.empty(matrices.shape, np.int64)
    lanes = SumLanes(matrices, plan, accumulator)
    if lanes.exact_bits:
        factors = Factors.of(lanes, plan, lanes.exact_bits)
        columns = tile_sums.of_matrix(matrices, plan.sequence)
        if clips is not None:
            factors.own_events(columns, final, clips)
        factors.observe(columns, final, low, high)
        return UnlimitedSums(final, low, high, clips)
    start, end = _start_and_end(matrices, accumulator)
    sum_by_program(matrices, plan, accumulator, start, (final, low, high), True, clips)
    if end is not None:
        final += end
        np.minimum(low, final, out=low)
        np.maximum(high, final, out=high)
    return UnlimitedSums(final, low, high, clips)


def emulated(matrices: Matrices, terms: Terms, accumulator: Accumulator) -> Clipped:
    """Sums brought into the range at every step, and how many steps left it."""
    plan = _plan(terms, accumulator)
    if plan is None:
        return _by_oracle(matrices, terms, accumulator, oracle.emulate, Clipped)
    values, events = (buffer_pool.empty(matrices.shape, np.int64) for _ in range(2))
    if not values.size:
        return Clipped(values, events)
    lanes = SumLanes(matrices, plan, accumulator)
    if lanes.limited_bits:
        factors = Factors.of(lanes, plan, lanes.limited_bits)
        factors.clip(tile_sums.of_matrix(matrices, plan.sequence), values, events)
        return Clipped(values, events)
    start, end = _start_and_end(matrices, accumulator)
    start, start_events = limited(start, accumulator)
    sum_by_program(matrices, plan, accumulator, start, (values, events, events), False)
    events += start_events
    if end is not None:
        values, end_events = limited(values + end, accumulator)
        events += end_events
    return Clipped(values, events)


def has_fast_kernel(matrices: Matrices, terms: Terms, accumulator: Accumulator) -> bool:
    """Whether a kernel supports this case that saturates about as fast as it multiplies."""
    return SumLanes(matrices, _plan(terms, accumulator), accumulator).limited_bits > 0


def inner_widths_may_change(matrices: Matrices, accumulator: Accumulator, terms: Terms) -> bool:
    """Whether products or stages with a width of their own may change sums without a range."""
    plan = program(accumulator.order, terms)
    if plan is None or products_may_change(matrices, accumulator):
        return True
    own = min((each.range[1] for each in plan.registers if each is not None), default=LIMIT)
    return matrices.bound > own


def limited(sums: Array, accumulator: Accumulator) -> tuple[Array, Array]:
    """Sums brought into the range; int64 1 where they were outside."""
    low, high = accumulator.range
    outside = ((sums < low) | (sums > high)).astype(np.int64)
    if not outside.any():
        return sums, outside
    return oracle.into_range(sums, low, high, accumulator.overflow), outside


def _plan(terms: Terms, accumulator: Accumulator) -> Program | None:
    """The program that a kernel runs; None for a user's order that only the oracle can follow."""
    order = accumulator.order
    if order.reorders and type(order) is not Sorted:
        return None
    return program(order, terms)


def _start_and_end(matrices: Matrices, accumulator: Accumulator) -> tuple[Array, Array | None]:
    """What sums begin with, and what is added at their end."""
    bias = np.broadcast_to(matrices.bias, matrices.shape)
    return (bias, None) if accumulator.is_bias_first else (np.zeros_like(bias), bias)


def _by_oracle(
    matrices: Matrices, terms: Terms, accumulator: Accumulator, define: Callable[..., Any],
    result: type[Any],
) -> Any:  # fmt: skip
    """The result of the definition itself, so many sums at a time that memory stays flat."""
    outs = [np.zeros(matrices.shape, np.int64) for _ in result.__slots__]
    bias = np.broadcast_to(matrices.bias, matrices.shape)
    ones = np.ones((matrices.depth, 1), np.int64)
    parts = parallel.pieces(outs[0].size, max(_ORACLE // max(matrices.depth, 1), 1))

    def block(index: int) -> None:
        part = np.arange(parts[index].start, parts[index].stop)
        rows, columns = np.unravel_index(part, matrices.shape)
        left, right = matrices.left[rows], matrices.right.T[columns]
        products = left.astype(np.int64) * right.astype(np.int64)
        sums = define(products, ones, bias[rows, columns], terms, accumulator)
        for name, out in zip(result.__slots__, outs, strict=True):
            out[rows, columns] = getattr(sums, name)[:, 0]

    parallel.run_blocks(len(parts), block)
    return result(*outs)
