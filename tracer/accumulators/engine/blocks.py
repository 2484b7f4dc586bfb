"""Blocks of exact sums by the compiled kernels: which lanes they fit, and the work of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.accumulators.engine import oracle, panels, programmed
from tracer.accumulators.engine.matrices import LIMIT, Operands, over_bands
from tracer.accumulators.engine.programs import Program, program
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator, signed_range
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.spec.orders.sorted import Sorted
from tracer.accumulators.statistics.sums import Clipped, Excursions
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.types import Array

_ORACLE = 1 << 20
"""Products that are written out at a time, where no kernel knows the order."""

_LOOKS = (4, 16, 128)
"""Terms between which hopeful sums are looked at."""

_WIDE = (panels.INT16, 1 << 31)


def observed(given: Operands, terms: Terms, accumulator: Accumulator) -> Excursions:
    """Sums without a range and their extremes; the bias as the accumulator has it."""
    start, end = _ends(given, accumulator)
    final, low, high = (buffer_pool.empty(given.shape, np.int64) for _ in range(3))
    if not final.size:
        return Excursions(final, low, high)
    plan = None if accumulator.order.reorders else program(accumulator.order, terms)
    balanced = type(accumulator.order) is Sorted
    if plan is None and not balanced:
        return _by_oracle(given, terms, accumulator, oracle.observe, Excursions)
    bites = programmed.bites(given, accumulator)
    if balanced:
        programmed.balanced(given, terms, accumulator, start, (final, low, high), observed=True)
    elif plan is not None and plan.sequential and not bites and given.bound < _WIDE[1]:
        _dense_extremes(given, plan, np.broadcast_to(start, given.shape), (final, low, high))
    else:
        programmed.by_program(given, terms, accumulator, start, (final, low, high), observed=True)
    if end is not None:
        final += end
        np.minimum(low, final, out=low)
        np.maximum(high, final, out=high)
    return Excursions(final, low, high)


def emulated(given: Operands, terms: Terms, accumulator: Accumulator) -> Clipped:
    """Sums brought back at every step, and how often that happened."""
    values, events = (buffer_pool.empty(given.shape, np.int64) for _ in range(2))
    if not values.size:
        return Clipped(values, events)
    plan = None if accumulator.order.reorders else program(accumulator.order, terms)
    balanced = type(accumulator.order) is Sorted
    if plan is None and not balanced:
        return _by_oracle(given, terms, accumulator, oracle.emulate, Clipped)
    start, end = _ends(given, accumulator)
    begun, early = met(start, accumulator)
    begun = np.broadcast_to(begun, given.shape)
    if balanced:
        programmed.balanced(
            given, terms, accumulator, begun, (values, events, events), observed=False
        )
    elif plan is not None and plan.sequential and hopes(given, terms, accumulator):
        lanes = lane_bits(given, accumulator)
        _dense_clip(given, plan, accumulator, lanes, begun, (values, events))
    else:
        programmed.by_program(
            given, terms, accumulator, begun, (values, events, events), observed=False
        )
    if early.any():
        events += early
    if end is not None:
        values, late = met(values + end, accumulator)
        events += late
    return Clipped(values, events)


def hopes(given: Operands, terms: Terms, accumulator: Accumulator) -> bool:
    """Whether a kernel clips that is about as fast as a plain product where nothing overflows."""
    if accumulator.order.reorders or accumulator.overflow in ("wrap", "zero"):
        return False
    plan = program(accumulator.order, terms)
    if plan is None or programmed.bites(given, accumulator):
        return False
    if plan.sequential:
        return lane_bits(given, accumulator) > 0
    return programmed.grouped(given, plan, accumulator)


def alters(given: Operands, accumulator: Accumulator, terms: Terms) -> bool:
    """Whether exact sums may differ from plain ones: products or stages with their own width."""
    plan = program(accumulator.order, terms)
    if plan is None or programmed.bites(given, accumulator):
        return True
    own = min((1 << bits - 1 for bits in plan.bits if bits is not None), default=LIMIT)
    return given.bound >= own


def _ends(given: Operands, accumulator: Accumulator) -> tuple[Array, Array | None]:
    """What sums begin with, and what is added at their end."""
    if accumulator.bias == "first":
        return given.bias, None
    return np.zeros_like(given.bias), given.bias


def met(sums: Array, accumulator: Accumulator) -> tuple[Array, Array]:
    """Sums brought back into the range, and where they were outside."""
    low, high = accumulator.range
    outside = ((sums < low) | (sums > high)).astype(np.int64)
    if not outside.any():
        return sums, outside
    return oracle.brought_back(sums, low, high, accumulator.overflow), outside


def lane_bits(given: Operands, accumulator: Accumulator) -> int:
    """The bits of the narrowest lanes in which clipped sums are exact; 0 if they are too narrow.

    In int16 an addition that saturates is exact, if the range lies within the lane or is it.
    """
    low, high = accumulator.range
    whole = (low, high) == signed_range(16)
    if max(*given.factors, given.term) < _WIDE[0] and (
        given.bound < _WIDE[0] or whole or (low > -_WIDE[0] and high < _WIDE[0] - 1)
    ):
        return 16
    reach = min(max(-low, high), given.bound) + given.term
    return 32 if max(*given.factors, reach) < _WIDE[1] else 0


def _dense_clip(
    given: Operands,
    plan: Program,
    accumulator: Accumulator,
    bits: int,
    start: Array,
    outs: tuple[Array, Array],
) -> None:
    kernels = loaded("sequential_sums")
    laid = panels.dense(given, plan, bits)
    low, high = np.clip(accumulator.range, *signed_range(bits)).tolist()
    full = bits == 16 and (low, high) == signed_range(16)
    looks, limits = margins(given, low, high), np.array([low, high], laid.lane)
    width, flat = given.shape[1], [out.reshape(-1) for out in outs]

    def block(some: slice, part: slice) -> None:
        bands = slice(some.start // kernels.ROWS, -(-some.stop // kernels.ROWS))
        rows = slice(bands.start * kernels.ROWS, bands.stop * kernels.ROWS)
        left, pairs = laid.left[rows].reshape(-1), laid.pairs[rows].reshape(-1)
        kernels.clip(left, pairs, laid.depth, laid.panel(part), laid.tile, looks[bands],
                     start[some, part], limits, full,
                     *flat, some.start * width + part.start, width)  # fmt: skip

    panels.shared_out(given, laid, block)


def margins(given: Operands, low: int, high: int) -> Array:
    """For each band of rows what `dense.clip` asks: looks, and their distance from the range.

    A sum between two looks is no further from one of them than half of the terms between.
    """
    kernels = loaded("sequential_sums")
    largest = np.maximum(given.terms_of(kernels.ROWS), 1)
    room = (high - low) // (4 * largest)  # looks after so many terms cost an eighth of the range
    looks = np.array(_LOOKS)[np.searchsorted(_LOOKS[1:], room, side="right")]
    margin = looks // 2 * largest
    looks[2 * margin > high - low] = -1
    within = (given.least >= low) & (given.most <= high)
    looks[over_bands(within, kernels.ROWS, np.logical_and)] = 0
    return np.stack([looks, margin], axis=1)


def _dense_extremes(
    given: Operands, plan: Program, start: Array, outs: tuple[Array, Array, Array]
) -> None:
    kernels = loaded("sequential_sums")
    fits = max(*given.factors, given.bound) < _WIDE[0]
    laid = panels.dense(given, plan, 16 if fits else 32)
    width, flat = given.shape[1], [out.reshape(-1) for out in outs]
    zero = np.zeros(1, laid.lane)

    def block(some: slice, part: slice) -> None:
        stop = -(-some.stop // kernels.ROWS) * kernels.ROWS
        left = laid.left[some.start : stop].reshape(-1)
        kernels.observe(left, laid.depth, laid.panel(part), laid.tile,
                        start[some, part], zero, *flat, some.start * width + part.start,
                        width)  # fmt: skip

    panels.shared_out(given, laid, block)


def _by_oracle(
    given: Operands,
    terms: Terms,
    accumulator: Accumulator,
    define: Callable[..., Any],
    made: type[Any],
) -> Any:
    """The definition itself, so many sums at a time that memory stays flat."""
    outs = [np.zeros(given.shape, np.int64) for _ in made.__slots__]
    bias = np.broadcast_to(given.bias, given.shape)
    ones = np.ones((given.depth, 1), np.int64)
    parts = parallel.pieces(outs[0].size, max(_ORACLE // max(given.depth, 1), 1))

    def block(index: int) -> None:
        part = np.arange(parts[index].start, parts[index].stop)
        rows, columns = np.unravel_index(part, given.shape)
        products = given.left[rows].astype(np.int64) * given.right.T[columns].astype(np.int64)
        found = define(products, ones, bias[rows, columns], terms, accumulator)
        for name, out in zip(made.__slots__, outs, strict=True):
            out[rows, columns] = getattr(found, name)[:, 0]

    parallel.run_blocks(len(parts), block)
    return made(*outs)
