"""Sums the window of each input channel, then the channels."""

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, one_group, rows_of


@dataclass(frozen=True, slots=True)
class Channelwise(Order):
    """A sum for each channel, then their sum; a matrix product is summed sequentially."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the windows and the channels."""
        if terms.window == 1:
            return (one_group(terms.count),)
        return Stage(rows_of(terms.count, terms.window)), one_group(terms.channels)
