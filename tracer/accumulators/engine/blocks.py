"""Blocks of dot products: chooses the kernel, and runs it on blocks of rows and columns."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.accumulators.engine import oracle, panels
from tracer.accumulators.engine.matrices import INT16, INT32, LIMIT, Matrices, over_bands
from tracer.accumulators.engine.programs import (
    Outs,
    Program,
    has_fast_groups,
    products_may_change,
    program,
    sum_by_program,
    sum_sorted,
)
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator, signed_range
from tracer.accumulators.spec.modes import effect_of
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.spec.orders.sorted import Sorted
from tracer.accumulators.statistics.sums import Clipped, UnlimitedSums
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.types import Array

_ORACLE = 1 << 20
"""Products that the oracle writes out at a time."""

_INTERVALS = (4, 16, 128)
"""Numbers of terms that may lie between two checks of unlimited sums."""


def observed(matrices: Matrices, terms: Terms, accumulator: Accumulator) -> UnlimitedSums:
    """Sums without a range and their extremes; the bias is first or last, as the accumulator's."""
    plan = _plan(terms, accumulator)
    if plan is None:
        return _by_oracle(matrices, terms, accumulator, oracle.observe, UnlimitedSums)
    final, low, high = (buffer_pool.empty(matrices.shape, np.int64) for _ in range(3))
    if not final.size:
        return UnlimitedSums(final, low, high)
    start, end = _start_and_end(matrices, accumulator)
    clips = None if plan.has_one_width else np.empty(matrices.shape, np.int64)
    _sum(matrices, plan, terms, accumulator, start, (final, low, high), True, clips)
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
    start, end = _start_and_end(matrices, accumulator)
    start, start_events = limited(start, accumulator)
    _sum(matrices, plan, terms, accumulator, start, (values, events, events), False)
    if start_events.any():
        events += start_events
    if end is not None:
        values, end_events = limited(values + end, accumulator)
        events += end_events
    return Clipped(values, events)


def has_fast_kernel(matrices: Matrices, terms: Terms, accumulator: Accumulator) -> bool:
    """Whether a kernel supports this case that saturates about as fast as it multiplies."""
    if accumulator.order.reorders or not effect_of(accumulator.overflow).clips:
        return False
    plan = program(accumulator.order, terms)
    if plan is None or products_may_change(matrices, accumulator):
        return False
    if plan.sequential:
        return lane_bits(matrices, accumulator) > 0
    return has_fast_groups(matrices, plan, accumulator)


def inner_widths_may_change(matrices: Matrices, accumulator: Accumulator, terms: Terms) -> bool:
    """Whether products or stages with a width of their own may change sums without a range."""
    plan = program(accumulator.order, terms)
    if plan is None or products_may_change(matrices, accumulator):
        return True
    own = min((1 << bits - 1 for bits in plan.bits if bits is not None), default=LIMIT)
    return matrices.bound >= own


def limited(sums: Array, accumulator: Accumulator) -> tuple[Array, Array]:
    """Sums brought into the range; int64 1 where they were outside."""
    low, high = accumulator.range
    outside = ((sums < low) | (sums > high)).astype(np.int64)
    if not outside.any():
        return sums, outside
    return oracle.into_range(sums, low, high, accumulator.overflow), outside


def lane_bits(matrices: Matrices, accumulator: Accumulator) -> int:
    """The bits of the narrowest lanes in which saturating sums are exact; 0 if there are none.

    In int16 lanes a saturating addition is exact if the range lies within the lane or is the lane.
    """
    low, high = accumulator.range
    full = (low, high) == signed_range(16)
    if max(*matrices.factors, matrices.largest_term) < INT16 and (
        matrices.bound < INT16 or full or (low > -INT16 and high < INT16 - 1)
    ):
        return 16
    reach = min(max(-low, high), matrices.bound) + matrices.largest_term
    return 32 if max(*matrices.factors, reach) < INT32 else 0


def check_plan(matrices: Matrices, low: int, high: int) -> Array:
    """The `checks` of `sequential_sums.clip`, int64 (bands, 2): interval and margin.

    A sum between two checks is no further from one of them than half of the terms between them
    can take it.
    """
    band = loaded("sequential_sums").ROWS
    largest = np.maximum(matrices.factors[1] * over_bands(matrices.largest, band, np.maximum), 1)
    room = (high - low) // (4 * largest)  # so many terms take up an eighth of the range
    intervals = np.array(_INTERVALS)[np.searchsorted(_INTERVALS[1:], room, side="right")]
    margins = intervals // 2 * largest
    intervals[2 * margins > high - low] = -1
    within = (matrices.least >= low) & (matrices.most <= high)
    intervals[over_bands(within, band, np.logical_and)] = 0
    return np.stack([intervals, margins], axis=1)


def _plan(terms: Terms, accumulator: Accumulator) -> Program | None:
    """The program that a kernel runs; None for a user's order that only the oracle can follow."""
    order = accumulator.order
    if order.reorders and type(order) is not Sorted:
        return None
    return program(order, terms)


def _start_and_end(matrices: Matrices, accumulator: Accumulator) -> tuple[Array, Array | None]:
    """What sums begin with, and what is added at their end."""
    if accumulator.is_bias_first:
        return matrices.bias, None
    return np.zeros_like(matrices.bias), matrices.bias


def _sum(
    matrices: Matrices, plan: Program, terms: Terms, accumulator: Accumulator, start: Array,
    outs: Outs, observed: bool, clips: Array | None = None,
) -> None:  # fmt: skip
    """Computes sums by the fastest kernel that supports the case."""
    start = np.broadcast_to(start, matrices.shape)
    exact_products = not products_may_change(matrices, accumulator)
    if type(accumulator.order) is Sorted:
        sum_sorted(matrices, plan, accumulator, start, outs, observed)
    elif observed and plan.sequential and exact_products and matrices.bound < INT32:
        _observe_sequential(matrices, plan, start, outs)
    elif not observed and plan.sequential and has_fast_kernel(matrices, terms, accumulator):
        _clip_sequential(matrices, plan, accumulator, start, outs[:2])
    else:
        sum_by_program(matrices, plan, accumulator, start, outs, observed, clips)


def _clip_sequential(
    matrices: Matrices, plan: Program, accumulator: Accumulator, start: Array,
    outs: tuple[Array, Array],
) -> None:  # fmt: skip
    kernels, bits = loaded("sequential_sums"), lane_bits(matrices, accumulator)
    layout = panels.for_vectors(matrices, plan.sequence, bits)
    low, high = np.clip(accumulator.range, *signed_range(bits)).tolist()
    full = bits == 16 and (low, high) == signed_range(16)
    checks, limits = check_plan(matrices, low, high), np.array([low, high], layout.lane)
    width, flat = matrices.shape[1], [out.reshape(-1) for out in outs]

    def block(rows: slice, columns: slice) -> None:
        bands, band_rows = panels.whole_bands(rows)
        left, pairs = (side[band_rows].reshape(-1) for side in (layout.left, layout.pairs))
        kernels.clip(left, pairs, layout.depth, layout.panel(columns), layout.tile, checks[bands],
                     start[rows, columns], limits, full,
                     *flat, rows.start * width + columns.start, width)  # fmt: skip

    panels.run_in_blocks(matrices.shape, layout, block)


def _observe_sequential(matrices: Matrices, plan: Program, start: Array, outs: Outs) -> None:
    kernels, small = loaded("sequential_sums"), max(*matrices.factors, matrices.bound) < INT16
    layout = panels.for_vectors(matrices, plan.sequence, 16 if small else 32)
    width, flat = matrices.shape[1], [out.reshape(-1) for out in outs]
    zero = np.zeros(1, layout.lane)

    def block(rows: slice, columns: slice) -> None:
        left = layout.left[panels.whole_bands(rows)[1]].reshape(-1)
        kernels.observe(left, layout.depth, layout.panel(columns), layout.tile,
                        start[rows, columns], zero, *flat, rows.start * width + columns.start,
                        width)  # fmt: skip

    panels.run_in_blocks(matrices.shape, layout, block)


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
