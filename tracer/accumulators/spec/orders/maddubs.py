"""Sums like x86's byte multiply-add: pairs saturate in 16 bits, then are summed in lanes.

Intel's instruction PMADDUBSW multiplies unsigned by signed bytes and adds neighbours with
saturation to 16 bits (Software Developer's Manual, volume 2B); libraries for int8 products add the
results lane by lane.
"""

from dataclasses import dataclass

from tracer.accumulators.spec.orders import Order, Stage, Terms, rows_of
from tracer.accumulators.spec.orders.lanes import Lanes
from tracer.accumulators.spec.register import Register

_PAIR = Register(16)


@dataclass(frozen=True, slots=True)
class Maddubs(Order):
    """Pairs in 16 bits, then `size` lanes of the accumulator: 16 in a register of 256 bits."""

    size: int = 16

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the pairs, the lanes and their sum."""
        pairs = Stage(rows_of(terms.count, 2), _PAIR)
        return pairs, *Lanes(self.size).stages(Terms(len(pairs.groups)))
