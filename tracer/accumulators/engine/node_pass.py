"""The dot products of a whole node in one compiled pass that gathers columns, sums and counts.

The pass supports the sequential order, saturating overflow, and operands that fit int16. All other
cases go through the blocks of `dots`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracer.accumulators.engine import blocks, panels
from tracer.accumulators.engine.column_source import ColumnSource
from tracer.accumulators.engine.matrices import INT16, INT32, Matrices, checked
from tracer.accumulators.engine.panels import Panels
from tracer.accumulators.engine.programs import program
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator, signed_range
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics import bins
from tracer.accumulators.statistics.tally import EXTREMES, Tally
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_NUMBERS = 1 << 16
"""Numbers of the columns that are written out at a time: with their panel 256 KiB."""
_SUMS = 1 << 14
"""Sums that are computed at a time."""
_WORK = 1 << 23
"""Products of one block: long compared with handing it to a thread."""


@dataclass(frozen=True)
class NodePass:
    """Rows of factors, ready to be multiplied with columns whose numbers lie in `range`."""

    matrices: Matrices
    range: tuple[int, int]
    bias: Array | None
    sequence: Array
    accumulator: Accumulator
    bits: int

    def suits(self, left: Array, range_: tuple[int, int], bias: Array | None) -> bool:
        """Whether this is the pass of these rows, columns and bias."""
        return range_ == self.range and all(
            np.array_equal(a, b) if a is not None and b is not None else a is b
            for a, b in ((self.matrices.left, left), (self.bias, bias))
        )

    @property
    def cannot_overflow(self) -> bool:
        """Whether no sum leaves the range of the accumulator, whatever the columns."""
        low, high = self.accumulator.range
        return bool((self.matrices.least >= low).all() and (self.matrices.most <= high).all())

    def clip_and_count(
        self, columns: ColumnSource, unchanged: int, mark_unchanged: bool, out: Array
    ) -> Array:
        """Writes the clipped sums to the flat `out`; returns the kernel's counts, int64 (4)."""
        kernel, (layout, start, start_events, checks, limits) = (
            loaded("gather_and_sum").clip_and_count, self._clipping,
        )  # fmt: skip
        parts, width = self._parts(columns)
        shape = (len(self.matrices.left), width)
        start, exact_start = (np.broadcast_to(s, shape) for s in (start, self.matrices.bias))
        full = self.bits == 16 and self.accumulator.range == signed_range(16)
        counts, range_ = np.zeros((len(parts), 4), np.int64), np.array(self.accumulator.range)
        where, strides = self._where(columns), np.array(columns.out_strides, np.int64)
        factors, exact = ((p.left.reshape(-1), p.pairs.reshape(-1)) for p in (layout, self._int32))

        def block(index: int) -> None:
            part = parts[index]
            kernel(
                *where, part.start, part.stop, width, *factors, layout.depth, layout.tile, checks,
                start, limits, full, start_events, *exact, exact_start, range_,
                unchanged, mark_unchanged, out, strides, counts[index],
            )  # fmt: skip

        parallel.run_blocks(len(parts), block)
        return counts.sum(0)

    def tally(self, columns: ColumnSource) -> Tally:
        """Statistics of the sums without a range, by row."""
        kernel, layout = loaded("gather_and_sum").observe_and_spread, self._int32
        parts, width = self._parts(columns)
        start = np.broadcast_to(self.matrices.bias, (len(self.matrices.left), width))
        tallies = [Tally.empty(len(start), self.accumulator) for _ in parts]
        where = self._where(columns)

        def block(index: int) -> None:
            part, tally = parts[index], tallies[index]
            extremes = np.stack([getattr(tally, name) for name in EXTREMES])
            kernel(
                *where, part.start, part.stop, width, layout.left.reshape(-1), layout.depth, start,
                self.accumulator.is_symmetric, bins.FRACTION, tally.prefix_widths,
                tally.final_widths, tally.low_histogram, tally.high_histogram,
                tally.final_histogram, extremes,
            )  # fmt: skip
            tally.outputs[:] = part.stop - part.start
            for name, values in zip(EXTREMES, extremes, strict=True):
                getattr(tally, name)[:] = values

        parallel.run_blocks(len(parts), block)
        for other in tallies[1:]:
            tallies[0].merge(other)
        return tallies[0]

    @cached_property
    def _int32(self) -> Panels:
        """The rows in int32 lanes, which hold all sums."""
        return panels.for_vectors(self.matrices, self.sequence, 32)

    @cached_property
    def _clipping(self) -> tuple[Panels, Array, Array, Array, Array]:
        """The rows in lanes for clipped sums, and the arguments of `sequential_sums.clip`.

        The start within the range, (M) int64 1 where the bias is outside, checks, and limits.
        """
        layout = self._int32
        if self.bits != 32:
            layout = panels.for_vectors(self.matrices, self.sequence, self.bits)
        start, start_events = blocks.limited(self.matrices.bias, self.accumulator)
        low, high = np.clip(self.accumulator.range, *signed_range(self.bits)).tolist()
        limits = np.array([low, high], layout.lane)
        checks = blocks.check_plan(self.matrices, low, high)
        return layout, start, start_events.reshape(-1), checks, limits

    def _where(self, columns: ColumnSource) -> tuple[Array, Array, Array, Array]:
        sizes, strides = (np.array(each, np.int64) for each in (columns.sizes, columns.strides))
        return columns.source, columns.offsets[self.sequence], sizes, strides

    def _parts(self, columns: ColumnSource) -> tuple[list[slice], int]:
        """The columns of each block, and how many are taken at a time: a multiple of any tile."""
        rows, depth = self.matrices.left.shape
        tile = loaded("sequential_sums").COLUMNS_16
        most = min(_NUMBERS // max(depth, 1), _SUMS // rows, columns.count + tile - 1)
        width = max(most // tile, 1) * tile
        block = max(_WORK // max(rows * depth * width, 1), 1) * width
        return parallel.pieces(columns.count, block), width


def prepared(
    left: Array, range_: tuple[int, int], bias: Array | None, terms: Terms,
    accumulator: Accumulator,
) -> NodePass | None:  # fmt: skip
    """The pass of `left` (M, K) times columns in `range_`, plus `bias` (M); None if unsupported.

    Raises ModelError where magnitudes add up to 2^62.
    """
    plan = None if accumulator.order.reorders else program(accumulator.order, terms)
    if plan is None or not plan.sequential or not left.size:
        return None
    # Two columns of the ends of the range bound the sums of any columns.
    ends = np.broadcast_to(np.array(range_), (left.shape[1], 2))
    matrices = checked(left, ends, bias, terms)
    if max(matrices.factors) >= INT16 or matrices.bound >= INT32:
        return None
    added_last = bias is not None and not accumulator.is_bias_first
    if added_last or not blocks.has_fast_kernel(matrices, terms, accumulator):
        return None
    bits = blocks.lane_bits(matrices, accumulator)
    return NodePass(matrices, range_, bias, plan.sequence, accumulator, bits)
