"""Intervals of integers, element by element, and what an overflow mode makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.spec.register import Overflow, effect_of
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Interval:
    """Integers from `low` to `high`, arrays that broadcast together."""

    low: Array
    high: Array

    def each(self, function: Callable[[Array], Array]) -> Interval:
        """Returns the interval whose ends are `function` of these ends."""
        return Interval(function(self.low), function(self.high))

    def joined(self, other: Interval) -> Interval:
        """Returns the least interval that contains both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def plus(self, other: Interval) -> Interval:
        """Returns the interval of the sums."""
        return Interval(self.low + other.low, self.high + other.high)

    def with_zero(self) -> Interval:
        """Returns the least interval that contains this one and 0."""
        return self.joined(self.each(np.zeros_like))


def limited(values: Interval, low: int, high: int, overflow: Overflow) -> Interval:
    """Returns the intervals of what an overflow mode makes of `values`."""
    beyond = (values.low < low) | (values.high > high)
    clipped = values.each(lambda end: np.clip(end, low, high))
    match effect_of(overflow).outside:
        case "end":
            return clipped
        case "any":
            outside = Interval(np.asarray(low), np.asarray(high))
        case "zero":
            outside = clipped.with_zero()
    return Interval(
        np.where(beyond, outside.low, clipped.low), np.where(beyond, outside.high, clipped.high)
    )


def stacked(intervals: list[Interval]) -> Interval:
    """Returns intervals one after another, along the first axis."""
    lows, highs = zip(*((interval.low, interval.high) for interval in intervals), strict=True)
    return Interval(np.concatenate(lows), np.concatenate(highs))
