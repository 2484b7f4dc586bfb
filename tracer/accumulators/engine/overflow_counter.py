"""The dot products of one node at one width, with no more counted than how many overflow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine import dots
from tracer.accumulators.engine.column_source import Columns
from tracer.accumulators.engine.node_pass import Rows
from tracer.accumulators.engine.sum_runner import UNCHANGED, SumRunner, exact_sums
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.sums import Clipped
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Counts:
    """What a tally says of all channels together at the accumulator's own width."""

    overflow_outputs: int = 0
    transient_outputs: int = 0
    persistent_outputs: int = 0
    saturation_events: int = 0
    outputs_changed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))


class OverflowCounter(SumRunner):
    """A meter that makes the same sums, and keeps `counts` in place of a tally.

    It looks at no sum that bounds show to stay within the range.
    """

    def __init__(self, accumulator: Accumulator, mark_unchanged: bool) -> None:
        super().__init__(accumulator, mark_unchanged)
        self.counts = Counts()

    def _sum(
        self, left: Array, right: Array, bias: Array | None, terms: Terms, channels: slice,
        out: Array,
    ) -> None:  # fmt: skip
        low, high = self.accumulator.range
        final, clipped = dots.settle(left, right, bias, terms, self.accumulator)
        exact = exact_sums(left, right, bias) if self._formatted else final
        changed = clipped.values != exact
        out[...] = (
            np.where(changed, clipped.values, UNCHANGED) if self.mark_unchanged else clipped.values
        )
        self._count(clipped, (final < low) | (final > high), changed)

    def _sweep(self, rows: Rows, columns: Columns, channels: slice, out: Array) -> bool:
        if self._formatted:
            return False
        there = out.reshape(-1)[channels.start * columns.apart[1] :]
        outside, lasting, events, changed = rows.counted(
            columns, UNCHANGED, self.mark_unchanged, there
        ).tolist()
        self._add(Counts(outside, outside - lasting, lasting, events, changed))
        return True

    def _count(self, clipped: Clipped, persistent: Array, changed: Array) -> None:
        """A run has events where its sums leave the range, as exact ones do first at that place."""
        outside, lasting = (int(np.count_nonzero(each)) for each in (clipped.events, persistent))
        events, altered = int(clipped.events.sum()), int(np.count_nonzero(changed))
        self._add(Counts(outside, outside - lasting, lasting, events, altered))

    def _add(self, part: Counts) -> None:
        with self._lock:
            self.counts += part
