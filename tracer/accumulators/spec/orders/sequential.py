"""One sum, term after term: channel, kernel row, kernel column."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, whole


@dataclass(frozen=True, slots=True)
class Sequential(Order):
    """The terms in the order the operator defines them."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """One sum."""
        return (whole(terms.count),)
