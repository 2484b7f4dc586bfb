"""Dot products in narrow accumulators: the oracle's functions, compiled and equally exact."""

from __future__ import annotations

from tracer.accumulators.engine import blocks, overflow_candidates
from tracer.accumulators.engine.matrices import checked
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.sums import Clipped, Excursions
from tracer.support.types import Array


def observe(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> Excursions:
    """Sums of `left` (M, K) times `right` (K, P) plus `bias` (M) as if there were no limit.

    Operands are integers of any width; `terms` says what K consists of. Raises ModelError where
    they do not fit each other, or magnitudes sum up to 2^62.
    """
    return blocks.observed(checked(left, right, bias, terms), terms, accumulator)


def emulate(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> Clipped:
    """The same sums, brought back into the range of `accumulator` at every step.

    `error` is computed as `saturate`; its events are for the caller to raise.
    """
    return blocks.emulated(checked(left, right, bias, terms), terms, accumulator)


def measure(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> tuple[Excursions, Clipped]:
    """What `observe` and `emulate` give; `values` may be the array `final`, where none differs.

    Sums that stayed in the range are final: a clipped run is the exact one up to the first step
    that leaves it. Only the others are emulated.
    """
    given = checked(left, right, bias, terms)
    seen = blocks.observed(given, terms, accumulator)
    low, high = accumulator.range
    if not seen.final.size or (seen.low.min() >= low and seen.high.max() <= high):
        return seen, overflow_candidates.kept(seen.final)
    outside = (seen.low < low) | (seen.high > high)
    return seen, overflow_candidates.emulated(given, terms, accumulator, seen.final, outside)


def clip(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> Clipped:
    """What `emulate` gives, with less work where few sums can overflow.

    The kernels that add term after term, or groups of terms, look where that is by themselves; in
    other orders only sums are emulated whose products of either sign, added up, could leave the
    range.
    """
    given = checked(left, right, bias, terms)
    if blocks.hopes(given, terms, accumulator) or blocks.alters(given, accumulator, terms):
        return blocks.emulated(given, terms, accumulator)
    final, outside = overflow_candidates.bounded(given, accumulator)
    return overflow_candidates.emulated(given, terms, accumulator, final, outside)


def settle(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> tuple[Array, Clipped]:
    """The final sums that `observe` gives, and what `clip` gives, without the sums on the way.

    `values` may be the array of final sums, where none differs.
    """
    given = checked(left, right, bias, terms)
    if blocks.alters(given, accumulator, terms):
        seen, clipped = measure(left, right, bias, terms, accumulator)
        return seen.final, clipped
    if blocks.hopes(given, terms, accumulator):
        clipped = blocks.emulated(given, terms, accumulator)
        return overflow_candidates.exact(given) if clipped.events.any() else clipped.values, clipped
    final, outside = overflow_candidates.bounded(given, accumulator)
    return final, overflow_candidates.emulated(given, terms, accumulator, final, outside)
