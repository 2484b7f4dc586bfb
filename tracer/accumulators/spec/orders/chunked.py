"""Chunks of so many terms, then the chunks."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, at_least_one, rows_of, whole


@dataclass(frozen=True, slots=True)
class Chunked(Order):
    """Sums of `size` terms each, then their sum."""

    size: int

    def __post_init__(self) -> None:
        at_least_one("a chunk", self.size)

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """The chunks, and all of them."""
        chunks = Stage(rows_of(terms.count, self.size))
        return chunks, whole(len(chunks.groups))
