"""Sums neighbours in pairs, then the pairs in pairs, and so on, as an adder tree does."""

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, one_group, rows_of


@dataclass(frozen=True, slots=True)
class Tree(Order):
    """Pairs of pairs; an odd number at the end passes to the next level."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns one stage for each level."""
        levels = []
        count = terms.count
        while count > 2:
            levels.append(Stage(rows_of(count, 2)))
            count = -(-count // 2)
        return (*levels, one_group(count))
