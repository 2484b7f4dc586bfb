"""What came of a block of dot products under an accumulator."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Excursions:
    """Of a run with an unlimited accumulator: int64 arrays of the block's shape.

    `final` is the sum; `low` and `high` are the least and the greatest number that the
    accumulator held on the way, 0 before the first term among them.
    """

    final: Array
    low: Array
    high: Array

    def reshaped(self, rows: int) -> Excursions:
        """The same with so many rows."""
        return Excursions(*(in_rows(a, rows) for a in (self.final, self.low, self.high)))


@dataclass(frozen=True, slots=True)
class Clipped:
    """Of a run with a narrow one: `values`, int64, and `events`, how many steps left the range."""

    values: Array
    events: Array

    def reshaped(self, rows: int) -> Clipped:
        """The same with so many rows."""
        return Clipped(in_rows(self.values, rows), in_rows(self.events, rows))


def in_rows(sums: Array, rows: int) -> Array:
    """The sums in so many rows, of which there may be none."""
    return sums.reshape(rows, sums.size // max(rows, 1))
