"""Computes the dot products of a node, and counts nothing."""

from tracer.accumulators.engine import dots
from tracer.accumulators.engine.column_source import ColumnSource
from tracer.accumulators.engine.node_pass import NodePass
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.spec.orders import Terms
from tracer.support.types import Array


class LimitedSums(SumRunner):
    """Computes the same sums, without statistics."""

    counts_by_channel = False

    def _sum(
        self, left: Array, right: Array, bias: Array | None, terms: Terms, channels: slice,
        out: Array,
    ) -> None:  # fmt: skip
        _, clipped = dots.final_and_clipped(left, right, bias, terms, self.accumulator)
        out[...] = clipped.values

    def _run_pass(
        self, node_pass: NodePass, columns: ColumnSource, out: Array, parameters: Array | None
    ) -> None:
        node_pass.clip(columns, out.reshape(-1), parameters)
