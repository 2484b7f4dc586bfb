"""How far sums can go, whatever the data: intervals of terms, added up as the order adds them.

Partial sums matter, not only the last one: with weights [1, -1] and inputs from 2 to 3 the result
lies in [-1, 1], and 3 has to be held on the way. Terms are independent of each other, so along
the stages of an order the ends of the intervals are reached by some input; there is no narrower
bound. It is a bound but may not be reached where products wrap or become 0 for their own width,
where an order depends on its terms, and in padded windows, whose terms are dropped together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tracer.accumulators.spec.accumulator import WIDEST, Accumulator, signed_range
from tracer.accumulators.spec.orders import Stage, Terms
from tracer.errors import UsageError
from tracer.support.types import Array

_BLOCK = 1 << 18
"""Terms looked at together, so that memory stays flat in large layers."""

_SAFE = 2.0**62
"""Numbers that may reach this are kept as Python's, which have no limit."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Integers from `low` to `high`, arrays that broadcast against each other."""

    low: Array
    high: Array

    def joined(self, other: Interval) -> Interval:
        """The least interval that holds both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def plus(self, other: Interval) -> Interval:
        """The interval of sums."""
        return Interval(self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Arrays (channels,): where all partial sums lie, and the least widths that hold them.

    `low`, `high` and `bits` are for the accumulator's order; the others for any order, grouping
    and place of the bias. Limits are integers, Python's own (dtype object) where 64 bits are too
    few; widths are int64, 65 where none is enough. 0, before the first term, is in all intervals.
    """

    low: Array
    high: Array
    bits: Array
    any_order_low: Array
    any_order_high: Array
    any_order_bits: Array


def guaranteed(
    weights: Array,
    low: Array | int,
    high: Array | int,
    bias: Array | None,
    terms: Terms,
    accumulator: Accumulator,
    padded: bool = False,
) -> Bounds:
    """Bounds of `weights` (M, K) times any numbers from `low` to `high`, (K,) or one for all.

    Operands are integers less their zero points; `bias` is (M). `padded` says that windows may
    reach over the edge of the input, where terms are dropped. Raises UsageError where `low` is
    above `high`.
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
    """The same of one channel, where both operands, and the bias, are anything in a range.

    A range is the lowest and the highest number, integers or arrays (K,).
    """
    one = _range(*left)
    low, high = (np.broadcast_to(end, (1, terms.count)) for end in (one.low, one.high))
    start = _range(*(bias or (0, 0)))
    start = Interval(start.low.reshape(1), start.high.reshape(1))
    return _bounds(Interval(low, high), _range(*right), start, terms, accumulator, padded)


def datatype(
    terms: Terms,
    left: tuple[int, int],
    right: tuple[int, int],
    bias: tuple[int, int] | None,
    accumulator: Accumulator,
) -> int:
    """The least width that holds all partial sums of any operands of two types.

    Ranges are those of the types, less their zero points. The width is exact: no larger than
    A2Q's (`a2q.datatype_bound`), which rounds both types up to powers of two, keeps to a range
    with as many negative as positive numbers, and knows no bias; it may be one bit less.
    """
    return int(guaranteed_of_ranges(left, right, bias, terms, accumulator).bits[0])


def _range(low: Array | int, high: Array | int) -> Interval:
    made = Interval(np.asarray(low), np.asarray(high))
    if (made.low > made.high).any():
        raise UsageError(
            f"a range from {low} to {high} is empty", "Give the lowest number, then the highest."
        )
    return made


def _bounds(
    left: Interval,
    right: Interval,
    bias: Interval,
    terms: Terms,
    accumulator: Accumulator,
    padded: bool,
) -> Bounds:
    """Bounds of the channels of `left` (M, K) times `right` (K,), with `bias` (M)."""
    parts = []
    for rows in _blocks(*left.low.shape):
        operands = Interval(left.low[rows], left.high[rows]), right
        start = Interval(bias.low[rows], bias.high[rows])
        kind = _kind(*operands, start)
        one, other, start = (_as(kind, interval) for interval in (*operands, start))
        products = _kept(_products(one, other), accumulator)
        if padded:
            products = _with_zero(products)
        parts.append((_along(products, start, terms, accumulator), _anyhow(products, start)))
    mine, anyhow = (_stacked(list(intervals)) for intervals in zip(*parts, strict=True))
    return Bounds(
        mine.low, mine.high, _bits(mine, accumulator),
        anyhow.low, anyhow.high, _bits(anyhow, accumulator),
    )  # fmt: skip


def _blocks(rows: int, depth: int) -> Iterator[slice]:
    height = max(_BLOCK // max(depth, 1), 1)
    return (slice(start, start + height) for start in range(0, max(rows, 1), height))


def _kind(left: Interval, right: Interval, bias: Interval) -> type:
    """int64, or object where a sum may be too large for it."""
    one, other, start = (
        np.maximum(np.abs(x.low.astype(float)), np.abs(x.high.astype(float)))
        for x in (left, right, bias)
    )
    reach = (one * other).sum(-1) + start
    return np.int64 if (reach < _SAFE).all() else object


def _as(kind: type, interval: Interval) -> Interval:
    return Interval(interval.low.astype(kind), interval.high.astype(kind))


def _products(left: Interval, right: Interval) -> Interval:
    corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return Interval(reduce(np.minimum, corners), reduce(np.maximum, corners))


def _kept(products: Interval, accumulator: Accumulator) -> Interval:
    """Products brought into a width of their own, if they have one."""
    if accumulator.product_bits is None:
        return products
    low, high = accumulator.range_of(accumulator.product_bits)
    beyond = (products.low < low) | (products.high > high)
    if accumulator.overflow == "wrap":
        return Interval(np.where(beyond, low, products.low), np.where(beyond, high, products.high))
    kept = Interval(np.clip(products.low, low, high), np.clip(products.high, low, high))
    if accumulator.overflow == "zero":
        zeroed = _with_zero(kept)
        return Interval(
            np.where(beyond, zeroed.low, kept.low), np.where(beyond, zeroed.high, kept.high)
        )
    return kept


def _with_zero(interval: Interval) -> Interval:
    zero = np.zeros_like(interval.low)
    return interval.joined(Interval(zero, zero))


def _anyhow(products: Interval, bias: Interval) -> Interval:
    """Sums of any of the products, with the bias or without."""
    chosen, start = _with_zero(products), _with_zero(bias)
    return Interval(chosen.low.sum(-1) + start.low, chosen.high.sum(-1) + start.high)


def _along(products: Interval, bias: Interval, terms: Terms, accumulator: Accumulator) -> Interval:
    """All partial sums in the accumulator's order."""
    if not terms.count:
        return _with_zero(bias)
    nothing = Interval(np.zeros_like(bias.low), np.zeros_like(bias.high))
    first = accumulator.bias == "first"
    start = bias if first else nothing
    if accumulator.order.reorders:
        low, _ = accumulator.order.envelope(products.low, products.high, start.low)
        _, high = accumulator.order.envelope(products.low, products.high, start.high)
        reached = _with_zero(Interval(low, high))
        total = start.plus(Interval(products.low.sum(-1), products.high.sum(-1)))
    else:
        reached, total = _through(products, start, accumulator.order.stages(terms))
    return reached if first else reached.joined(total.plus(bias))


def _through(
    terms: Interval, start: Interval, stages: tuple[Stage, ...]
) -> tuple[Interval, Interval]:
    """All partial sums, and the final one, of stages of which the last begins with `start`."""
    reached = _with_zero(start)
    for stage in stages:
        if stage.bits is not None:
            terms = _saturated(terms, stage)
            continue
        sums = Interval(*(_grouped(end, stage).cumsum(-1) for end in (terms.low, terms.high)))
        if stage is stages[-1]:
            sums = sums.plus(Interval(start.low[:, None, None], start.high[:, None, None]))
        reached = reached.joined(Interval(sums.low.min((1, 2)), sums.high.max((1, 2))))
        terms = Interval(sums.low[..., -1], sums.high[..., -1])
    return reached, Interval(terms.low[:, 0], terms.high[:, 0])


def _grouped(values: Array, stage: Stage) -> Array:
    """The terms of each group (M, groups, longest); adding 0 changes no partial sum."""
    return np.where(stage.groups >= 0, values[:, stage.groups], 0)


def _saturated(terms: Interval, stage: Stage) -> Interval:
    """Sums in a register of the stage's own: clipping keeps the order of numbers."""
    assert stage.bits is not None
    ends = []
    for end in (terms.low, terms.high):
        grouped = _grouped(end, stage)
        total = np.zeros_like(grouped[..., 0])
        for step in range(grouped.shape[-1]):
            total = np.clip(total + grouped[..., step], *signed_range(stage.bits))
        ends.append(total)
    return Interval(*ends)


def _stacked(intervals: list[Interval]) -> Interval:
    return Interval(
        np.concatenate([interval.low for interval in intervals]),
        np.concatenate([interval.high for interval in intervals]),
    )


def _bits(interval: Interval, accumulator: Accumulator) -> Array:
    lowest, highest = signed_range(WIDEST)
    fitting = (np.clip(end, lowest, highest).astype(np.int64)
               for end in (interval.low, interval.high))  # fmt: skip
    beyond = (interval.low < lowest) | (interval.high > highest)
    return np.where(beyond, WIDEST + 1, accumulator.bits_for(*fitting))
