"""Computes the dot products of a node, and counts nothing."""

import numpy as np

from tracer.accumulators.engine import dots
from tracer.accumulators.engine.column_source import ColumnSource
from tracer.accumulators.engine.node_pass import NodePass
from tracer.accumulators.engine.sum_runner import UNCHANGED, SumRunner, exact_sums
from tracer.accumulators.spec.orders import Terms
from tracer.support.types import Array


class LimitedSums(SumRunner):
    """Computes the same sums without statistics.

    It skips sums that cannot leave the range by their bounds.
    """

    def _sum(
        self, left: Array, right: Array, bias: Array | None, terms: Terms, channels: slice,
        out: Array,
    ) -> None:  # fmt: skip
        final, clipped = dots.final_and_clipped(left, right, bias, terms, self.accumulator)
        if self.mark_unchanged:
            exact = exact_sums(left, right, bias) if self._has_inner_widths else final
            out[...] = np.where(clipped.values != exact, clipped.values, UNCHANGED)
        else:
            out[...] = clipped.values

    def _run_pass(
        self, node_pass: NodePass, columns: ColumnSource, channels: slice, out: Array
    ) -> bool:
        if self._has_inner_widths or not self.mark_unchanged:
            return False
        if node_pass.cannot_overflow:
            out[:, channels] = UNCHANGED
            return True
        first = channels.start * columns.columns.out_strides[1]
        node_pass.count(columns, out.reshape(-1)[first:], with_events=False)
        return True
