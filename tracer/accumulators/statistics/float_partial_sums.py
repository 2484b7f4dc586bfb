"""The statistics of one node's sums in a float accumulator."""

from dataclasses import dataclass

from tracer.accumulators.statistics.float_tally import FloatTally


@dataclass(frozen=True, slots=True)
class FloatPartialSums:
    """The sums of the node with key `node`."""

    node: str
    tally: FloatTally
