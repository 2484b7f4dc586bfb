"""Sums chunks of consecutive terms, then the chunks."""

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, check_size, one_group, rows_of


@dataclass(frozen=True, slots=True)
class Chunked(Order):
    """Sums of `size` terms each, then their sum."""

    size: int

    def __post_init__(self) -> None:
        check_size("a chunk", self.size)

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the chunks and their sum."""
        chunks = Stage(rows_of(terms.count, self.size))
        return chunks, one_group(len(chunks.groups))
