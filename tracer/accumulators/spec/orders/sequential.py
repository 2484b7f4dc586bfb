"""Sums term after term: channel, kernel row, kernel column."""

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, one_group


@dataclass(frozen=True, slots=True)
class Sequential(Order):
    """The terms in the order of the operator's definition."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns one stage of all terms."""
        return (one_group(terms.count),)
