"""Sums in interleaved lanes, as in a vector register, then sums the lanes."""

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, check_size, one_group, rows_of


@dataclass(frozen=True, slots=True)
class Lanes(Order):
    """Term k is added to lane k mod `size`; then the lanes are summed in order."""

    size: int

    def __post_init__(self) -> None:
        check_size("a number of lanes", self.size)

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the lanes and their sum."""
        lanes = Stage(rows_of(terms.count, self.size).T)
        return lanes, one_group(len(lanes.groups))
