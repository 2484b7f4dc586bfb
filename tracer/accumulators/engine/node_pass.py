"""The dot products of a whole node in one compiled pass: gathered, summed and counted.

Only sums that add term after term and saturate, of operands that fit int16; for all others there
are the blocks of `dots`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracer.accumulators.engine import blocks, panels
from tracer.accumulators.engine.column_source import Columns
from tracer.accumulators.engine.matrices import Operands, checked
from tracer.accumulators.engine.panels import Panels
from tracer.accumulators.engine.programs import Program, program
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator, signed_range
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics import bins
from tracer.accumulators.statistics.tally import EXTREMES, Tally
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_WIDE = 1 << 16
"""Numbers of the columns that are written out at a time: with their panel 256 KiB."""
_SUMS = 1 << 14
"""Sums that are made at a time."""
_WORK = 1 << 23
"""Products of one block: long against handing it to a thread."""
_REACH = 1 << 31


@dataclass(frozen=True)
class Rows:
    """Rows of factors ready to be multiplied with any columns whose numbers lie in `ends`."""

    given: Operands
    ends: tuple[int, int]
    bias: Array | None
    plan: Program
    accumulator: Accumulator
    lanes: int

    def are(self, left: Array, ends: tuple[int, int], bias: Array | None) -> bool:
        """Whether these are the same rows."""
        mine = (self.given.left, self.bias)
        return ends == self.ends and all(
            np.array_equal(a, b) if a is not None and b is not None else a is b
            for a, b in zip(mine, (left, bias), strict=True)
        )

    @property
    def safe(self) -> bool:
        """Whether no sum can leave the range, whatever the columns."""
        low, high = self.accumulator.range
        return bool((self.given.least >= low).all() and (self.given.most <= high).all())

    def counted(self, columns: Columns, kept: int, mark_unchanged: bool, out: Array) -> Array:
        """Clip the sums into the flat `out`, as the kernel does; its counts, int64 (4)."""
        kernel, (laid, exact, early) = loaded("gather_and_sum").counted, self._clipping
        parts, wide = self._parts(columns)
        begun, bias, looks, limits, range_ = self._limits
        shape = (len(self.given.left), wide)
        begun, bias = (np.broadcast_to(each, shape) for each in (begun, bias))
        full = self.lanes == 16 and self.accumulator.range == signed_range(16)
        counts = np.zeros((len(parts), 4), np.int64)
        where, apart = self._where(columns), np.array(columns.apart, np.int64)

        def block(index: int) -> None:
            part = parts[index]
            kernel(
                *where, part.start, part.stop, wide,
                laid.left.reshape(-1), laid.pairs.reshape(-1), laid.depth, laid.tile, looks,
                begun, limits, full, early, exact.left.reshape(-1), exact.pairs.reshape(-1), bias,
                range_, kept, mark_unchanged, out, apart, counts[index],
            )  # fmt: skip

        parallel.run_blocks(len(parts), block)
        return counts.sum(0)

    def tallied(self, columns: Columns) -> Tally:
        """Statistics of the sums without a range, of each row."""
        kernel, laid = loaded("gather_and_sum").tallied, self._whole
        parts, wide = self._parts(columns)
        start = np.broadcast_to(self.given.bias, (len(self.given.left), wide))
        made = [Tally.empty(len(start), self.accumulator) for _ in parts]
        symmetric, where = self.accumulator.overflow == "symmetric", self._where(columns)

        def block(index: int) -> None:
            part, tally = parts[index], made[index]
            extremes = np.stack([getattr(tally, name) for name in EXTREMES])
            kernel(
                *where, part.start, part.stop, wide, laid.left.reshape(-1), laid.depth,
                start, symmetric, bins.FRACTION, tally.prefix_widths, tally.final_widths,
                tally.low_histogram, tally.high_histogram, tally.final_histogram, extremes,
            )  # fmt: skip
            tally.outputs[:] = part.stop - part.start
            for name, found in zip(EXTREMES, extremes, strict=True):
                getattr(tally, name)[:] = found

        parallel.run_blocks(len(parts), block)
        for other in made[1:]:
            made[0].merge(other)
        return made[0]

    @cached_property
    def _whole(self) -> Panels:
        """The rows in lanes that hold all sums."""
        return panels.dense(self.given, self.plan, 32)

    @cached_property
    def _clipping(self) -> tuple[Panels, Panels, Array]:
        """The rows in lanes for clipped sums, and for exact ones; rows that begin clipped."""
        laid = self._whole if self.lanes == 32 else panels.dense(self.given, self.plan, self.lanes)
        _, early = blocks.met(self.given.bias, self.accumulator)
        return laid, self._whole, early.reshape(-1)

    @cached_property
    def _limits(self) -> tuple[Array, Array, Array, Array, Array]:
        """What sums begin with, clipped and not; what `dense.clip` asks; the range itself."""
        begun, _ = blocks.met(self.given.bias, self.accumulator)
        low, high = np.clip(self.accumulator.range, *signed_range(self.lanes)).tolist()
        limits = np.array([low, high], np.dtype(f"int{self.lanes}"))
        looks, range_ = blocks.margins(self.given, low, high), np.array(self.accumulator.range)
        return begun, self.given.bias, looks, limits, range_

    def _where(self, columns: Columns) -> tuple[Array, Array, Array, Array]:
        sizes, steps = (np.array(each, np.int64) for each in (columns.sizes, columns.steps))
        return columns.source, columns.offsets[self.plan.sequence], sizes, steps

    def _parts(self, columns: Columns) -> tuple[list[slice], int]:
        """Columns of each block, and how many are taken at a time: a multiple of every tile."""
        rows, depth = self.given.left.shape
        tile = loaded("sequential_sums").COLUMNS_16
        most = min(_WIDE // max(depth, 1), _SUMS // rows, columns.count + tile - 1)
        wide = max(most // tile, 1) * tile
        each = max(_WORK // max(rows * depth * wide, 1), 1) * wide
        return parallel.pieces(columns.count, each), wide


def rows(
    left: Array,
    ends: tuple[int, int],
    bias: Array | None,
    terms: Terms,
    accumulator: Accumulator,
) -> Rows | None:
    """What sums `left` (M, K) times columns, plus `bias` (M); None if the kernels cannot.

    Raises ModelError where magnitudes sum up to 2^62.
    """
    plan = None if accumulator.order.reorders else program(accumulator.order, terms)
    if plan is None or not plan.sequential or not left.size:
        return None
    # Any column whatever: what bounds the sums are the ends that no number is beyond.
    given = checked(left, np.broadcast_to(np.array(ends), (left.shape[1], 2)), bias, terms)
    if max(given.factors) >= panels.INT16 or given.bound >= _REACH:
        return None
    late = bias is not None and accumulator.bias == "last"
    if late or not blocks.hopes(given, terms, accumulator):
        return None
    return Rows(given, ends, bias, plan, accumulator, blocks.lane_bits(given, accumulator))
