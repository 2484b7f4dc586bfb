"""The sums of a block of dot products in an unlimited and in a narrow accumulator."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class UnlimitedSums:
    """Sums in an unlimited accumulator: int64 arrays of the block's shape.

    `final` is the sum; `low` and `high` are the least and the greatest partial sum, including 0
    before the first term. `clips` counts the additions that left a register with a width of its
    own, such as the pairs of `maddubs`; None where there is no such register.
    """

    final: Array
    low: Array
    high: Array
    clips: Array | None = None

    def reshaped(self, rows: int) -> UnlimitedSums:
        """Returns the same sums in `rows` rows."""
        final, low, high = (in_rows(a, rows) for a in (self.final, self.low, self.high))
        clips = None if self.clips is None else in_rows(self.clips, rows)
        return UnlimitedSums(final, low, high, clips)


@dataclass(frozen=True, slots=True)
class Clipped:
    """Sums in a narrow accumulator, int64; `events` counts the additions that left a range."""

    values: Array
    events: Array

    def reshaped(self, rows: int) -> Clipped:
        """Returns the same sums in `rows` rows."""
        return Clipped(in_rows(self.values, rows), in_rows(self.events, rows))


def in_rows(sums: Array, rows: int) -> Array:
    """Returns the sums in `rows` rows, which may be 0."""
    return sums.reshape(rows, sums.size // max(rows, 1))
