"""Interleaved sums, as the lanes of a vector register, added up at the end."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, at_least_one, rows_of, whole


@dataclass(frozen=True, slots=True)
class Lanes(Order):
    """Term k is added to sum k mod `size`; then the sums, the first one first."""

    size: int

    def __post_init__(self) -> None:
        at_least_one("a number of lanes", self.size)

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """The lanes, and all of them."""
        lanes = Stage(rows_of(terms.count, self.size).T)
        return lanes, whole(len(lanes.groups))
