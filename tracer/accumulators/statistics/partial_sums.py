"""The statistics of one node's sums together with its guaranteed widths."""

from dataclasses import dataclass

from tracer.accumulators.statistics.tally import Tally
from tracer.support.types import IntArray


@dataclass(frozen=True, slots=True)
class PartialSums:
    """The partial sums of the node with key `node`, and the widths that suffice for them.

    `tally` has the statistics by output channel, under the accumulator that it names. `guaranteed`
    bits hold the partial sums of any input in the accumulator's order, `guaranteed_any_order` bits
    in any order. `guaranteed_channels`, int64 (channels,), are the guaranteed bits by channel.
    `datatype` bits follow from the types of the operands alone. `guaranteed_inner` bits, and their
    number by channel, hold the sums in registers within the order. None where unknown.
    """

    node: str
    tally: Tally
    guaranteed: int | None = None
    guaranteed_any_order: int | None = None
    guaranteed_channels: IntArray | None = None
    datatype: int | None = None
    guaranteed_inner: int | None = None
    guaranteed_inner_channels: IntArray | None = None
