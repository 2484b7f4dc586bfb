"""Computes the dot products of a node, and counts only overflows: no histograms, no extremes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine import dots
from tracer.accumulators.engine.column_source import ColumnSource
from tracer.accumulators.engine.kept_passes import KeptPasses
from tracer.accumulators.engine.node_pass import NodePass
from tracer.accumulators.engine.sum_runner import SumRunner, exact_sums
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of all channels together at the accumulator's own width; as in `Tally`."""

    overflow_outputs: int = 0
    transient_outputs: int = 0
    persistent_outputs: int = 0
    saturation_events: int = 0
    outputs_changed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))


class OverflowCounter(SumRunner):
    """Computes the same sums, with `counts` in place of statistics.

    It skips sums that cannot leave the range by their bounds.
    """

    counts_by_channel = False

    def __init__(self, accumulator: Accumulator, passes: KeptPasses | None = None) -> None:
        super().__init__(accumulator, passes)
        self.counts = Counts()

    def _sum(
        self, left: Array, right: Array, bias: Array | None, terms: Terms, channels: slice,
        out: Array,
    ) -> None:  # fmt: skip
        low, high = self.accumulator.range
        final, clipped = dots.final_and_clipped(left, right, bias, terms, self.accumulator)
        exact = exact_sums(left, right, bias) if self._has_inner_widths else final
        changed = clipped.values != exact
        out[...] = clipped.values
        # An output has events exactly if it overflows: its first step outside is an exact sum.
        flags = clipped.events, (final < low) | (final > high), changed
        outside, persistent, changes = (int(np.count_nonzero(each)) for each in flags)
        self._add(outside, persistent, int(clipped.events.sum()), changes)

    def _run_pass(
        self, node_pass: NodePass, columns: ColumnSource, out: Array, parameters: Array | None
    ) -> None:
        flat = out.reshape(-1)
        if node_pass.cannot_overflow:
            node_pass.clip(columns, flat, parameters)
        else:
            self._add(*node_pass.count(columns, flat, parameters).tolist())

    def _add(self, outside: int, persistent: int, events: int, changed: int) -> None:
        with self._lock:
            self.counts += Counts(outside, outside - persistent, persistent, events, changed)
