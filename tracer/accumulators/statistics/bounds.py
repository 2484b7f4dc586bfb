"""Guaranteed widths: bounds of all partial sums for any data, by interval arithmetic.

Partial sums matter in addition to the final sum. With weights [1, -1] and inputs from 2 to 3 the
result lies in [-1, 1], but a partial sum reaches 3. Terms are independent, so some input reaches
the ends of each interval, and the bounds are tight. They may not be reached where products wrap or
become 0 at their own width, where the order depends on the terms, and in padded windows, whose
terms are dropped together.

They follow from sums over the weights of a tile, so that training can keep to them. Accumulators
are symmetric, [-(2^(P-1) - 1), 2^(P-1) - 1], and the range of the inputs contains 0; then partial
sums in any order are covered. Biases and products of a narrow width are not. `bounds` is exact for
an order where these may round up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from operator import itemgetter, methodcaller

import numpy as np

from tracer.accumulators import spec
from tracer.accumulators.spec.accumulator import Accumulator, Rounding, rounded, rounding_of
from tracer.accumulators.spec.orders import Stage, Terms
from tracer.errors import UsageError
from tracer.support.types import Array, IntArray

_BLOCK = 1 << 18
"""Terms per block, so that memory stays flat in large layers."""
_SAFE = 2.0**62
"""Sums that may reach this use Python integers, which have no limit."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Integers from `low` to `high`, arrays that broadcast together."""

    low: Array
    high: Array

    def map_ends(self, function: Callable[[Array], Array]) -> Interval:
        """Returns the interval whose ends are `function` of these ends."""
        return Interval(function(self.low), function(self.high))

    def hull(self, other: Interval) -> Interval:
        """Returns the least interval that contains both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def plus(self, other: Interval) -> Interval:
        """Returns the interval of the sums."""
        return Interval(self.low + other.low, self.high + other.high)

    def with_zero(self) -> Interval:
        """Returns the least interval that contains this one and 0."""
        return self.hull(self.map_ends(np.zeros_like))

    def rounded(self, bits: int, rule: Rounding) -> Interval:
        """Returns the interval of these integers / 2^`bits`, rounded: itself for 0 bits."""
        if not bits:
            return self
        if rule.name == "stochastic":
            return Interval(self.low >> bits, -(-self.high >> bits))
        return self.map_ends(partial(rounded, shift=bits, rule=rule))

    def shifted(self, shift: spec.Shift | None) -> Interval:
        """Returns the interval of these sums as they go to the next register."""
        return self if shift is None else self.rounded(shift.bits, rounding_of(shift))


def _overflowed(values: Interval, low: int, high: int, overflow: spec.Overflow) -> Interval:
    """Returns the intervals of what an overflow mode makes of `values`."""
    beyond = (values.low < low) | (values.high > high)
    clipped = values.map_ends(lambda end: np.clip(end, low, high))
    match spec.effect_of(overflow).outside:
        case "end":
            return clipped
        case "any":
            outside = Interval(np.asarray(low), np.asarray(high))
        case "zero":
            outside = clipped.with_zero()
    return Interval(
        np.where(beyond, outside.low, clipped.low), np.where(beyond, outside.high, clipped.high)
    )


def _concat(intervals: Sequence[Interval]) -> Interval:
    """Returns intervals one after another, along the first axis."""
    return Interval(
        np.concatenate([each.low for each in intervals]),
        np.concatenate([each.high for each in intervals]),
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of all partial sums and the least widths that hold them, arrays (channels,).

    `low`, `high` and `bits` hold for the accumulator's order; the others for any order, grouping
    and position of the bias. `inner_bits` hold the sums in registers of the order's stages, if it
    has some. Bounds are integers, with dtype object where 64 bits are too few. Widths are int64; 65
    means that no width is sufficient. All intervals contain 0.
    """

    low: Array
    high: Array
    bits: Array
    any_order_low: Array
    any_order_high: Array
    any_order_bits: Array
    inner_bits: Array | None = None

    def widest(self, count: int) -> Bounds:
        """Returns the bounds of each `count` channels that follow each other, joined."""
        if count == 1:
            return self
        joined = {
            field.name: _WIDER.get(field.name, np.maximum).reduce(
                getattr(self, field.name).reshape(-1, count), axis=1
            )
            for field in fields(self)
            if getattr(self, field.name) is not None
        }
        return replace(self, **joined)


_WIDER = {"low": np.minimum, "any_order_low": np.minimum}
"""How bounds of several sums are joined; others take the maximum."""


def join(parts: Sequence[Bounds]) -> Bounds:
    """Returns bounds of the same channels that hold wherever any of the parts holds."""
    stacked = {
        field.name: np.stack([getattr(part, field.name) for part in parts], 1).reshape(-1)
        for field in fields(Bounds)
        if getattr(parts[0], field.name) is not None
    }
    return replace(parts[0], **stacked).widest(len(parts))


def guaranteed(
    weights: Array,
    low: Array | int,
    high: Array | int,
    bias: Array | None,
    terms: Terms,
    accumulator: Accumulator,
    padded: bool = False,
) -> Bounds:
    """Returns bounds of `weights` (M, K) times any inputs from `low` to `high`, (K,) or scalars.

    Zero points are already subtracted from operands; `bias` is (M). With `padded`, windows may
    cross the edge of the input, where terms are dropped. Raises UsageError where `low` is above
    `high`.
    """
    fixed = Interval(weights, weights)
    start = np.zeros(len(weights), np.int64) if bias is None else bias
    return _bounds(fixed, _range(low, high), Interval(start, start), terms, accumulator, padded)


def guaranteed_of_ranges(
    left: tuple[Array | int, Array | int],
    right: tuple[Array | int, Array | int],
    bias: tuple[int, int] | None,
    terms: Terms,
    accumulator: Accumulator,
    padded: bool = False,
) -> Bounds:
    """Returns bounds of one channel whose operands and bias are any numbers in their ranges.

    A range is the lowest and the highest number, integers or arrays (K,).
    """
    row = _range(*left).map_ends(lambda end: np.broadcast_to(end, (1, terms.count)))
    start = _range(*(bias or (0, 0))).map_ends(lambda end: end.reshape(1))
    return _bounds(row, _range(*right), start, terms, accumulator, padded)


def datatype(
    terms: Terms,
    left: tuple[Array | int, Array | int],
    right: tuple[Array | int, Array | int],
    bias: tuple[int, int] | None,
    accumulator: Accumulator,
) -> int:
    """Returns the least width that holds all partial sums of any operands of two types.

    Zero points are already subtracted from the ranges of the types. The width is exact. It is at
    most the bound of A2Q (arXiv 2308.13504), which rounds both types up to powers of two, uses a
    symmetric range and has no bias; it may be one bit less.
    """
    return int(guaranteed_of_ranges(left, right, bias, terms, accumulator).bits[0])


def _range(low: Array | int, high: Array | int) -> Interval:
    interval = Interval(np.asarray(low), np.asarray(high))
    if (interval.low > interval.high).any():
        raise UsageError(
            f"a range from {low} to {high} is empty", "Give the lowest number, then the highest."
        )
    return interval


def _bounds(
    left: Interval,
    right: Interval,
    bias: Interval,
    terms: Terms,
    accumulator: Accumulator,
    padded: bool,
) -> Bounds:
    """Returns bounds of the channels of `left` (M, K) times `right` (K,), with `bias` (M)."""
    rows, depth = left.low.shape
    height = max(_BLOCK // max(depth, 1), 1)
    in_order, any_order, inner = [], [], []
    for first in range(0, max(rows, 1), height):
        cut = itemgetter(slice(first, first + height))
        operands = left.map_ends(cut), right, bias.map_ends(cut)
        a, b, offset = (np.maximum(abs(x.low.astype(float)), abs(x.high.astype(float)))
                        for x in operands)  # fmt: skip
        is_int64 = ((a * b).sum(-1) + offset < _SAFE).all()  # no sum exceeds it
        cast = methodcaller("astype", np.int64 if is_int64 else object)
        weights, inputs, start = (interval.map_ends(cast) for interval in operands)
        products = _products(weights, inputs, accumulator)
        if padded:
            products = products.with_zero()
        any_subset = products.with_zero().map_ends(_total).plus(start.with_zero())
        start = start.rounded(accumulator.shift(terms), accumulator.bias_rounding(terms))
        in_order.append(_in_order(products, start, terms, accumulator))
        # a register that wraps may exceed the sum of any of its terms
        any_order.append(_coarser(any_subset, terms, accumulator).hull(in_order[-1]))
        own_bits = _inner_bits(products, start, terms, accumulator)
        inner += [] if own_bits is None else [own_bits]
    ordered, unordered = _concat(in_order), _concat(any_order)
    return Bounds(
        ordered.low, ordered.high, _bits(ordered, accumulator),
        unordered.low, unordered.high, _bits(unordered, accumulator),
        np.concatenate(inner) if inner else None,
    )  # fmt: skip


def _coarser(sums: Interval, terms: Terms, accumulator: Accumulator) -> Interval:
    """Returns the sums of any terms in the accumulator's unit: each shift rounds each group."""
    shift = accumulator.shift(terms)
    if not shift:
        return sums
    groups = sum(len(stage.groups) for stage in accumulator.order.stages(terms) if stage.shift)
    return Interval((sums.low >> shift) - groups, -(-sums.high >> shift) + groups)


def _products(left: Interval, right: Interval, accumulator: Accumulator) -> Interval:
    """Returns the intervals of what is added for products: without their low bits, in their width.

    The ends of a product are among the products of the ends of its factors.
    """
    corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    products = Interval(reduce(np.minimum, corners), reduce(np.maximum, corners))
    shift = accumulator.product_shift
    products = products.rounded(shift, accumulator.product_rounding)
    if accumulator.product_bits is not None:
        ends = accumulator.range_of(accumulator.product_bits)
        products = _overflowed(products, *ends, accumulator.overflow)
    return products.map_ends(lambda end: np.asarray(end << shift))


def _in_order(
    products: Interval, bias: Interval, terms: Terms, accumulator: Accumulator
) -> Interval:
    """Returns the interval of all partial sums in the accumulator's order."""
    if not terms.count:
        return bias.with_zero()
    start = bias if accumulator.is_bias_first else bias.map_ends(np.zeros_like)
    if accumulator.order.reorders:
        low, _ = accumulator.order.envelope(products.low, products.high, start.low)
        _, high = accumulator.order.envelope(products.low, products.high, start.high)
        reached, total = Interval(low, high).with_zero(), start.plus(products.map_ends(_total))
    else:
        reached, total = _staged(products, start, accumulator.order.stages(terms))
    return reached if accumulator.is_bias_first else reached.hull(total.plus(bias))


def _staged(
    terms: Interval, start: Interval, stages: tuple[Stage, ...]
) -> tuple[Interval, Interval]:
    """Returns the intervals of all partial sums and of the final sum; the last adds to `start`."""
    reached = start.with_zero()
    for stage in stages:
        if stage.register is not None:
            grouped = terms.map_ends(partial(_grouped, stage=stage))
            total = grouped.map_ends(lambda end: np.zeros_like(end[..., 0]))
            for step in range(grouped.low.shape[-1]):
                total = total.plus(grouped.map_ends(itemgetter((..., step))))
                total = _overflowed(total, *stage.register.range, stage.register.overflow)
            terms = total.shifted(stage.shift)
            continue
        if stage.spill is not None:
            values, _ = _spilled(terms, start, stage)
            return reached.hull(reduce(Interval.hull, values)), values[-1]
        sums = _partial_sums(terms, stage)
        if stage is stages[-1]:
            sums = sums.plus(start.map_ends(lambda end: end[:, None, None]))
        reached = reached.hull(Interval(sums.low.min((1, 2)), sums.high.max((1, 2))))
        terms = sums.map_ends(lambda end: end[..., -1])
    return reached, terms.map_ends(lambda end: end[:, 0])


def _grouped(values: Array, stage: Stage) -> Array:
    """Returns the terms of each group (M, groups, longest), filled with 0."""
    return np.where(stage.groups >= 0, values[:, stage.groups], 0)


def _partial_sums(terms: Interval, stage: Stage) -> Interval:
    """Returns the intervals of all partial sums of each group, (M, groups, longest)."""
    return terms.map_ends(partial(_grouped, stage=stage)).map_ends(partial(np.cumsum, axis=-1))


def _spilled(
    terms: Interval, start: Interval, stage: Stage, is_limited: bool = True
) -> tuple[list[Interval], list[Interval]]:
    """Returns all sums (M) of the last stage, and what narrow registers receive of them."""
    level, total = stage.spill, start
    assert level is not None and level.register is not None
    sums, received = [start], []
    for step, position in enumerate(stage.groups[0]):
        total = total.plus(terms.map_ends(itemgetter((..., position))))
        sums.append(total)
        if stage.spills_after(step):
            total = total.shifted(level.shift)
            received.append(total)
            if is_limited:
                total = _overflowed(total, *level.register.range, level.register.overflow)
            back = level.shift.bits if level.shift else 0
            total = Interval(total.low << back, total.high << back)
            sums.append(total)
    return sums, received


def _inner_bits(
    products: Interval, start: Interval, terms: Terms, accumulator: Accumulator
) -> Array | None:
    """Returns the least width (M) of all registers of stages in which nothing overflows.

    None where no stage has a register of its own, and for sums of nothing.
    """
    stages = accumulator.order.stages(terms) if products.low.size else ()
    having = [n for n, stage in enumerate(stages) if stage.register or stage.spill]
    needed, values = [], products
    for stage in stages[: max(having, default=-1) + 1]:
        if stage.spill is not None:
            if not accumulator.is_bias_first:
                start = start.map_ends(np.zeros_like)
            _, received = _spilled(values, start, stage, is_limited=False)
            if received and stage.spill.register is not None:
                needed.append((reduce(Interval.hull, received), stage.spill.register))
            break
        sums = _partial_sums(values, stage)
        if stage.register is not None:
            reached = Interval(sums.low.min((1, 2)), sums.high.max((1, 2)))
            needed.append((reached, stage.register))
        values = sums.map_ends(itemgetter((..., -1))).shifted(stage.shift)
    widths = []
    for reached, register in needed:
        convention: spec.Convention = "unsigned" if register.unsigned else "twos-complement"
        if accumulator.convention == "magnitude" and not register.unsigned:
            convention = accumulator.convention
        own = Accumulator(spec.NARROWEST, register.overflow, convention=convention)
        widths.append(_bits(reached.with_zero(), own))
    return reduce(np.maximum, widths) if widths else None


def _total(terms: Array) -> Array:
    return np.asarray(terms.sum(-1))


def _bits(interval: Interval, accumulator: Accumulator) -> Array:
    lowest, highest = spec.signed_range(spec.WIDEST)
    fitting = interval.map_ends(lambda end: np.clip(end, lowest, highest).astype(np.int64))
    beyond = (interval.low < lowest) | (interval.high > highest)
    return np.where(beyond, spec.WIDEST + 1, accumulator.bits_for(fitting.low, fitting.high))


def a2q_bits(weights: Array, input_bits: int, signed: bool, tile: int | None = None) -> IntArray:
    """Returns the widths by A2Q of integers `weights` (M, K), int64 (M, tiles).

    The least P with ||w||_1 <= (2^(P-1) - 1) 2^(s-N), for N = `input_bits`, and s = 1 for inputs
    that are `signed`, else 0 (Colbert et al., arXiv 2308.13504). `tile` consecutive
    terms are a tile; None takes all terms.
    """
    norms = np.abs(_tiles(weights, tile)).sum(-1)
    return _widths(norms << (input_bits - signed))


def a2q_plus_bits(weights: Array, input_bits: int, tile: int | None = None) -> IntArray:
    """Returns the widths by A2Q+ of tiles of weights that add up to 0, int64 (M, tiles).

    The least P with ||w||_1 <= (2^P - 2) / (2^N - 1), for N = `input_bits` (Colbert et al.,
    arXiv 2401.10432). Raises UsageError where the weights of a tile do not add up to 0.
    """
    tiles = _tiles(weights, tile)
    if tiles.sum(-1).any():
        raise UsageError("the weights of a tile do not add up to 0", "A2Q+ is for centred weights.")
    return _widths(np.abs(tiles).sum(-1) // 2 * ((1 << input_bits) - 1))


def axe_bits(weights: Array, low: int, high: int, tile: int | None = None) -> IntArray:
    """Returns the widths by AXE for inputs from `low` to `high`, int64 (M, tiles).

    The least P with high p + low n <= 2^(P-1) - 1 and low p + high n >= -(2^(P-1) - 1), where p
    and n are the sums of the positive and of the negative weights of a tile (Colbert et al., arXiv
    2409.17092). The papers' margin for rounding is left out: weights are integers. Raises
    UsageError for a range without 0.
    """
    if not low <= 0 <= high:
        raise UsageError(f"inputs from {low} to {high}", "The range contains 0.")
    tiles = _tiles(weights, tile)
    p, n = np.maximum(tiles, 0).sum(-1), np.minimum(tiles, 0).sum(-1)
    return _widths(np.maximum(high * p + low * n, -(low * p + high * n)))


def outer_bits(inner_bits: int, tiles: int) -> int:
    """Returns the width that holds any sum of `tiles` numbers of symmetric `inner_bits`.

    P + ceil(log2(tiles)), as AXE has it.
    """
    return inner_bits + (tiles - 1).bit_length()


def _tiles(weights: Array, tile: int | None) -> Array:
    """Returns the weights (M, tiles, terms), int64; zeros fill the last tile."""
    rows, depth = weights.shape
    size = max(depth if tile is None else tile, 1)
    count = max(-(-depth // size), 1)
    whole = np.zeros((rows, count * size), np.int64)
    whole[:, :depth] = weights
    return whole.reshape(rows, count, size)


def _widths(reach: Array) -> IntArray:
    """Returns the least P of each with `reach` <= 2^(P-1) - 1."""
    return np.vectorize(lambda number: number.bit_length() + 1, otypes=[np.int64])(
        reach.astype(object)
    )
