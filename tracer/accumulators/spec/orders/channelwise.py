"""Each input channel's window first, then across the channels."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, rows_of, whole


@dataclass(frozen=True, slots=True)
class Channelwise(Order):
    """A sum for every channel, then their sum; a matrix product is summed term after term."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """The windows, and the channels."""
        if terms.window == 1:
            return (whole(terms.count),)
        return Stage(rows_of(terms.count, terms.window)), whole(terms.channels)
