"""Dot products in narrow accumulators: the oracle's functions, compiled and equally exact."""

from __future__ import annotations

from tracer.interpreter.arithmetic import blocks, survivors
from tracer.interpreter.arithmetic.accumulator import Accumulator
from tracer.interpreter.arithmetic.matrices import checked
from tracer.interpreter.arithmetic.orders import Terms
from tracer.interpreter.arithmetic.sums import Clipped, Excursions
from tracer.interpreter.values import Array


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


def narrowed(
    left: Array,
    right: Array,
    bias: Array | None,
    terms: Terms,
    accumulator: Accumulator,
    seen: Excursions,
) -> Clipped:
    """What `emulate` gives, for operands that `observe` has `seen`.

    Sums that stayed in the range are final: a clipped run is the exact one up to the first step
    that leaves it. Only the others are emulated.
    """
    given = checked(left, right, bias, terms)
    low, high = accumulator.range
    outside = (seen.low < low) | (seen.high > high)
    return survivors.emulated(given, terms, accumulator, seen.final, outside)


def clip(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> Clipped:
    """What `emulate` gives, skipping what cannot overflow; its cost nears that of a product.

    Sums are emulated where the products of either sign, added up, could leave the range.
    """
    given = checked(left, right, bias, terms)
    if blocks.alters(given, accumulator, terms):
        return blocks.emulated(given, terms, accumulator)
    final, outside = survivors.bounded(given, accumulator)
    return survivors.emulated(given, terms, accumulator, final, outside)
