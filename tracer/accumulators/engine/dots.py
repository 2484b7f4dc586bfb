"""Dot products in narrow accumulators, exactly as the oracle defines them, by compiled kernels.

Only sums that may overflow are emulated step by step. A narrow run equals the run without a range
up to the first step that leaves the range. `observed` and `emulated` choose the kernel of a block.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.accumulators.engine import oracle, tile_sums
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator, rounding_of
from tracer.accumulators.spec.orders import Sorted, Terms
from tracer.accumulators.statistics.partial_sums import Clipped, UnlimitedSums
from tracer.interpreter.numeric import parallel, products, tensors
from tracer.support.types import Array

_ORACLE = 1 << 20
"""Products that the oracle writes out at a time."""
_SPARSE = 128
"""Where fewer than one in so many sums may overflow, each of them is emulated by itself."""
_PRODUCTS = 1 << 20
"""Products that are written out at a time for scattered sums, and for sums one by one."""
Case = tuple[Array, Array, Array | None, Terms, Accumulator]
"""Left (M, K), right (K, P), bias (M) or None, what K consists of, and the accumulator."""
Outs = tuple[Array, Array, Array]
"""int64 (M, P): final sums, and their least and greatest partial sums or, twice, their events."""


def measure(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> tuple[UnlimitedSums, Clipped]:
    """Sums of `left` (M, K) times `right` (K, P) plus `bias` (M), without a range and in it.

    Operands are integers of any width; `terms` says what K consists of. Overflow `error` is
    computed as `saturate`. Sums without a range are in the unit of the accumulator, which shifts
    make coarser. `values` may be the array `final` where no sum differs. Raises ModelError where
    shapes do not fit or magnitudes add up to 2^62.
    """
    matrices = tile_sums.checked(left, right, bias, terms)
    sums = observed(matrices, terms, accumulator)
    low, high = accumulator.range
    if not sums.final.size or (sums.low.min() >= low and sums.high.max() <= high):
        return sums, _unlimited_result(sums, accumulator, terms)
    outside = (sums.low < low) | (sums.high > high)
    return sums, _clipped(matrices, terms, accumulator, sums, outside)


def final_and_clipped(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> tuple[Array, Clipped]:
    """The final sums and the clipped sums of `measure`, without the extremes of partial sums.

    `values` may be the array of final sums where no sum differs.
    """
    matrices = tile_sums.checked(left, right, bias, terms)
    if inner_widths_may_change(matrices, accumulator, terms):
        sums, clipped = measure(left, right, bias, terms, accumulator)
        return sums.final, clipped
    if has_fast_kernel(matrices, terms, accumulator):
        clipped = emulated(matrices, terms, accumulator)
        overflows = clipped.events.any()
        return exact_sums(left, right, bias) if overflows else clipped.values, clipped
    final, outside = _possible_overflows(matrices, accumulator)
    sums = UnlimitedSums(final, final, final)
    return final, _clipped(matrices, terms, accumulator, sums, outside)


def _possible_overflows(
    matrices: tile_sums.Matrices, accumulator: Accumulator
) -> tuple[Array, Array]:
    """The exact sums (M, P), int64, and where a partial sum may leave the range in some order.

    No partial sum of y is below y - P or above y + N, where P and N are the sums of the positive
    and of the negative products' magnitudes. Rows that the bounds of the matrices keep within the
    range need one product. For other rows A, the sum of magnitudes, is a second product, and
    P = (A + y) / 2.
    """
    low, high = accumulator.range
    final = exact_sums(matrices.left, matrices.right)
    outside = np.zeros(matrices.shape, bool)
    doubtful = np.flatnonzero((matrices.least < low) | (matrices.most > high))
    if len(doubtful):
        magnitudes = matrices.of_rows(doubtful).magnitudes()
        sizes = exact_sums(magnitudes.left, magnitudes.right)
        bias, sums = matrices.bias[doubtful], final[doubtful]
        up = (sizes + sums) // 2 + np.maximum(bias, 0)
        down = (sums - sizes) // 2 + np.minimum(bias, 0)
        outside[doubtful] = (down < low) | (up > high)
    final += matrices.bias
    return final, outside


def _clipped(
    matrices: tile_sums.Matrices,
    terms: Terms,
    accumulator: Accumulator,
    sums: UnlimitedSums,
    outside: Array,
) -> Clipped:
    """The clipped sums: those of `sums`, except where `outside`, which are emulated."""
    rows = np.flatnonzero(outside.any(1))
    count = int(np.count_nonzero(outside))
    if not count:
        return _unlimited_result(sums, accumulator, terms)
    dense = count * _SPARSE >= len(rows) * matrices.shape[1] or matrices.depth == 0
    if dense and len(rows) == len(sums.final):
        return emulated(matrices, terms, accumulator)
    within = _unlimited_result(sums, accumulator, terms)
    values, events = within.values.copy(), within.events.copy()
    if dense:
        clipped = emulated(matrices.of_rows(rows), terms, accumulator)
        values[rows], events[rows] = clipped.values, clipped.events
        return Clipped(values, events)
    scattered = np.argwhere(outside)
    for piece in parallel.pieces(len(scattered), max(_PRODUCTS // matrices.depth, 1)):
        row, column = scattered[piece].T
        clipped = emulated(matrices.single_sums(row, column), terms, accumulator)
        values[row, column], events[row, column] = clipped.values[0], clipped.events[0]
    return Clipped(values, events)


def _unlimited_result(sums: UnlimitedSums, accumulator: Accumulator, terms: Terms) -> Clipped:
    """Sums that stay within the accumulator, and the events of registers of other widths."""
    shift = accumulator.shift(terms)
    values = sums.final << shift if shift else sums.final
    no_events = np.broadcast_to(np.int64(0), sums.final.shape)
    return Clipped(values, no_events if sums.clips is None else sums.clips)


def exact_sums(left: Array, right: Array, bias: Array | None = None) -> Array:
    """The sums of exact products, int64, without a range."""
    sums = np.empty((len(left), right.shape[1]), np.int64)
    products.integers(left, right, sums)
    return sums if bias is None else sums + bias[:, None]


def observed(matrices: tile_sums.Matrices, terms: Terms, accumulator: Accumulator) -> UnlimitedSums:
    """Sums without a range and their extremes; the bias is first or last, as the accumulator's.

    They are in the unit of the accumulator.
    """
    plan = _plan(terms, accumulator)
    if plan is None:
        return _by_oracle(matrices, terms, accumulator, oracle.observe, UnlimitedSums)
    final, low, high = (tensors.empty(matrices.shape, np.int64) for _ in range(3))
    if not final.size:
        return UnlimitedSums(final, low, high)
    has_own_widths = any(plan.registers) or plan.spills.any()
    clips = np.empty(matrices.shape, np.int64) if has_own_widths else None
    lanes = tile_sums.SumLanes(matrices, plan, accumulator)
    if lanes.exact_bits:
        factors = tile_sums.Factors.of(lanes, plan, lanes.exact_bits)
        columns = tile_sums.of_matrix(matrices, plan.sequence)
        if clips is not None:
            factors.own_events(columns, final, clips)
        factors.observe(columns, final, low, high)
        return UnlimitedSums(final, low, high, clips)
    start, end = _start_and_end(matrices, accumulator, terms)
    sum_by_program(matrices, plan, accumulator, start, (final, low, high), True, clips)
    if end is not None:
        final += end
        np.minimum(low, final, out=low)
        np.maximum(high, final, out=high)
    return UnlimitedSums(final, low, high, clips)


def emulated(matrices: tile_sums.Matrices, terms: Terms, accumulator: Accumulator) -> Clipped:
    """Sums brought into the range at every step, and how many steps left it.

    They are in the unit of the products.
    """
    plan = _plan(terms, accumulator)
    if plan is None:
        return _by_oracle(matrices, terms, accumulator, oracle.emulate, Clipped)
    values, events = (tensors.empty(matrices.shape, np.int64) for _ in range(2))
    if not values.size:
        return Clipped(values, events)
    lanes = tile_sums.SumLanes(matrices, plan, accumulator)
    if lanes.limited_bits:
        factors = tile_sums.Factors.of(lanes, plan, lanes.limited_bits)
        factors.clip(tile_sums.of_matrix(matrices, plan.sequence), values, events)
        values <<= accumulator.shift(terms)
        return Clipped(values, events)
    start, end = _start_and_end(matrices, accumulator, terms)
    start, start_events = limited(start, accumulator)
    sum_by_program(matrices, plan, accumulator, start, (values, events, events), False)
    events += start_events
    if end is not None:
        values, end_events = limited(values + end, accumulator)
        events += end_events
    return Clipped(values << accumulator.shift(terms), events)


def sum_by_program(
    matrices: tile_sums.Matrices, plan: tile_sums.Program, accumulator: Accumulator, start: Array,
    outs: Outs, observed: bool, clips: Array | None = None,
) -> None:  # fmt: skip
    """Computes sums in any order that has a program; without a range if `observed`.

    `clips` (M, P) receives the steps that left a register with a width of its own.
    """
    tables = _rules(matrices, plan, accumulator, observed), _leaving(plan)
    groups = plan.groups.groups
    if len(tables[1]):
        groups = np.column_stack([groups, plan.spills])
    left = np.ascontiguousarray(matrices.left[:, plan.sequence], np.int64)
    bias = matrices.bias if accumulator.is_bias_first else np.zeros_like(matrices.bias)
    exact = np.broadcast_to(bias, matrices.shape)
    rule, by_sign = accumulator.product_rounding, accumulator.order.reorders
    number = loaded("single_sums").rounding_rule(rule.name)
    rounding = np.array([accumulator.product_shift, number], np.int64), rule.salts(plan.sequence)
    width = max(_PRODUCTS // max(matrices.depth * len(left), 1), 1)
    parts = parallel.pieces(matrices.shape[1], width)
    clips = np.empty((0, 0), np.int64) if clips is None else clips

    def block(index: int) -> None:
        part = parts[index]
        right = matrices.right[plan.sequence, part].T.astype(np.int64, order="C")
        sums = tuple(out[:, part] for out in (*outs, clips))
        loaded("single_sums").run(
            left, right, groups, tables, rounding, (by_sign, observed),
            (exact[:, part], start[:, part]), sums,
        )  # fmt: skip

    parallel.run_blocks(len(parts), block)


def _rules(
    matrices: tile_sums.Matrices, plan: tile_sums.Program, accumulator: Accumulator, observed: bool
) -> Array:
    """The rules (registers + 1, 3), int64, of the registers, and last of products.

    A rule is what to do outside the range, and the range.
    """
    kernels = loaded("single_sums")
    rule = kernels.rule_of(accumulator.overflow)
    rows = [
        (kernels.rule_of(register.overflow), *register.range)
        if register is not None
        else (kernels.EXACT if observed else rule, *accumulator.range)
        for register in plan.registers
    ]
    width, products = accumulator.product_bits, (kernels.EXACT, 0, 0)
    if width is not None and tile_sums.products_may_change(matrices, accumulator):
        products = (rule, *accumulator.range_of(width))
    return np.array([*rows, products], np.int64)


def _leaving(plan: tile_sums.Program) -> Array:
    """What sums become as they leave a register, as `single_sums.added` reads it."""
    kernels = loaded("single_sums")
    rows, exact = [], (kernels.EXACT, 0, 0)
    for stage in plan.stages:
        level = stage.spill or stage
        narrow = None if stage.spill is None else stage.spill.register
        shift = level.shift
        rows.append((
            *(exact if narrow is None else (kernels.rule_of(narrow.overflow), *narrow.range)),
            *((0, 0, 0) if shift is None else (
                shift.bits, kernels.rounding_rule(shift.rounding),
                int(rounding_of(shift).salts(np.zeros(1))[0]),
            )),
        ))  # fmt: skip
    is_needed = any(stage.shift or stage.spill for stage in plan.stages)
    return np.array(rows if is_needed else np.empty((0, 6)), np.int64)


def has_fast_kernel(matrices: tile_sums.Matrices, terms: Terms, accumulator: Accumulator) -> bool:
    """Whether a kernel supports this case that saturates about as fast as it multiplies."""
    plan = _plan(terms, accumulator)
    return plan is not None and tile_sums.SumLanes(matrices, plan, accumulator).limited_bits > 0


def inner_widths_may_change(
    matrices: tile_sums.Matrices, accumulator: Accumulator, terms: Terms
) -> bool:
    """Whether products or stages with a width of their own may change sums without a range."""
    plan = tile_sums.program(accumulator.order, terms)
    if plan is None or tile_sums.products_may_change(matrices, accumulator):
        return True
    if any(stage.shift or stage.spill for stage in plan.stages):
        return True
    ends = [end for each in plan.registers if each for end in (-each.range[0], each.range[1])]
    return matrices.bound > min(ends, default=tile_sums.LIMIT)


def limited(sums: Array, accumulator: Accumulator) -> tuple[Array, Array]:
    """Sums brought into the range; int64 1 where they were outside."""
    low, high = accumulator.range
    outside = ((sums < low) | (sums > high)).astype(np.int64)
    if not outside.any():
        return sums, outside
    return oracle.into_range(sums, low, high, accumulator.overflow), outside


def _plan(terms: Terms, accumulator: Accumulator) -> tile_sums.Program | None:
    """The program that a kernel runs; None for a user's order that only the oracle can follow."""
    order = accumulator.order
    if order.reorders and type(order) is not Sorted:
        return None
    return tile_sums.program(order, terms)


def _start_and_end(
    matrices: tile_sums.Matrices, accumulator: Accumulator, terms: Terms
) -> tuple[Array, Array | None]:
    """What sums begin with, and what is added at their end, in the unit of the accumulator."""
    bias = np.broadcast_to(accumulator.in_unit(matrices.bias, terms), matrices.shape)
    return (bias, None) if accumulator.is_bias_first else (np.zeros_like(bias), bias)


def _by_oracle(
    matrices: tile_sums.Matrices, terms: Terms, accumulator: Accumulator,
    define: Callable[..., Any], result: type[Any],
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
