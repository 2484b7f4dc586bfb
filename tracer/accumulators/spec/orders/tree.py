"""Neighbours in pairs, then the pairs in pairs, and so on: the adder tree of a parallel array."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, rows_of, whole


@dataclass(frozen=True, slots=True)
class Tree(Order):
    """Pairs of pairs; an odd one at the end passes to the next level."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """One stage for each level."""
        levels = []
        left = terms.count
        while left > 2:
            levels.append(Stage(rows_of(left, 2)))
            left = -(-left // 2)
        return (*levels, whole(left))
