"""The statistics of one node's sums together with its guaranteed widths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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

    @classmethod
    def merged(cls, parts: Sequence[PartialSums]) -> PartialSums:
        """Returns the sums of one node in several parts of the data, in whatever order.

        Where parts have different numbers of channels, all channels are counted as one. The parts
        stay as they are.
        """
        first, *others = parts
        if not others:
            return first
        tally = _merged_tally([part.tally for part in parts])
        channels = len(tally.outputs)
        return cls(
            first.node,
            tally,
            _greatest([part.guaranteed for part in parts]),
            _greatest([part.guaranteed_any_order for part in parts]),
            _by_channel([part.guaranteed_channels for part in parts], channels),
            _greatest([part.datatype for part in parts]),
            _greatest([part.guaranteed_inner for part in parts]),
            _by_channel([part.guaranteed_inner_channels for part in parts], channels),
        )


def _merged_tally(tallies: Sequence[Tally]) -> Tally:
    if len({len(tally.outputs) for tally in tallies}) > 1:
        tallies = [tally.folded() for tally in tallies]
    total = Tally.empty(len(tallies[0].outputs), tallies[0].accumulator)
    for tally in tallies:
        total.merge(tally)
    return total


def _greatest(widths: Sequence[int | None]) -> int | None:
    return max((bits for bits in widths if bits is not None), default=None)


def _by_channel(widths: Sequence[IntArray | None], channels: int) -> IntArray | None:
    """Returns the greatest widths (channels,); of all channels where their number differs."""
    known = [bits for bits in widths if bits is not None]
    if not known:
        return None
    if all(len(bits) == channels for bits in known):
        return np.asarray(np.max(known, 0))
    return np.broadcast_to(np.max([bits.max() for bits in known]), channels)
