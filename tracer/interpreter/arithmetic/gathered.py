"""The dot products of a whole node in one compiled pass: gathered, summed and counted.

Only sums that add term after term and saturate, of operands that fit int16; for all others there
are the blocks of `dots`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.interpreter import parallel
from tracer.interpreter.arithmetic import bins, blocks, panels
from tracer.interpreter.arithmetic.accumulator import Accumulator, signed_range
from tracer.interpreter.arithmetic.columns import Columns
from tracer.interpreter.arithmetic.matrices import Operands, checked
from tracer.interpreter.arithmetic.orders import Terms
from tracer.interpreter.arithmetic.programs import Program, program
from tracer.interpreter.arithmetic.tally import EXTREMES, Tally
from tracer.interpreter.compiled import loaded
from tracer.interpreter.values import Array

_WIDE = 1 << 16
"""Numbers of the columns that are written out at a time: with their panel 256 KiB."""
_SUMS = 1 << 14
"""Sums that are made at a time."""
_WORK = 1 << 23
"""Products of one block: long against handing it to a thread."""
_REACH = 1 << 31


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows against columns, ready for the kernels; what each needs is laid out on demand."""

    given: Operands
    columns: Columns
    plan: Program
    accumulator: Accumulator
    lanes: int

    @property
    def safe(self) -> bool:
        """Whether no sum can leave the range, whatever the columns."""
        low, high = self.accumulator.range
        return bool((self.given.least >= low).all() and (self.given.most <= high).all())

    def counted(self, kept: int, keeping: bool, out: Array) -> Array:
        """Clip the sums into the flat `out`, as the kernel does; its counts, int64 (4)."""
        kernels, low_high = loaded("gathered"), self.accumulator.range
        low, high = np.clip(low_high, *signed_range(self.lanes)).tolist()
        laid = panels.dense(self.given, self.plan, self.lanes)
        exact = laid if self.lanes == 32 else panels.dense(self.given, self.plan, 32)
        begun, early = blocks.met(self.given.bias, self.accumulator)
        looks = blocks.margins(self.given, low, high)
        limits, full = np.array([low, high], laid.lane), low_high == signed_range(16)
        wide, shape = self._wide(), (len(self.given.left), self._wide())
        start, bias = (np.broadcast_to(each, shape) for each in (begun, self.given.bias))
        parts = self._parts(wide)
        counts = np.zeros((len(parts), 4), np.int64)
        apart = np.array(self.columns.apart, np.int64)

        def block(index: int) -> None:
            part = parts[index]
            kernels.counted(
                *self._where(), part.start, part.stop, wide,
                laid.left.reshape(-1), laid.pairs.reshape(-1), laid.depth, laid.tile, looks,
                start, limits, self.lanes == 16 and full, early.reshape(-1),
                exact.left.reshape(-1), exact.pairs.reshape(-1), bias,
                np.array(low_high, np.int64), kept, keeping, out, apart, counts[index],
            )  # fmt: skip

        parallel.run_blocks(len(parts), block)
        return counts.sum(0)

    def tallied(self) -> Tally:
        """Statistics of the sums without a range, of each row."""
        kernels = loaded("gathered")
        laid = panels.dense(self.given, self.plan, 32)
        rows, wide = len(self.given.left), self._wide()
        start = np.broadcast_to(self.given.bias, (rows, wide))
        parts = self._parts(wide)
        made = [Tally.empty(rows, self.accumulator) for _ in parts]
        symmetric = self.accumulator.overflow == "symmetric"

        def block(index: int) -> None:
            part, tally = parts[index], made[index]
            extremes = np.stack([getattr(tally, name) for name in EXTREMES])
            kernels.tallied(
                *self._where(), part.start, part.stop, wide, laid.left.reshape(-1), laid.depth,
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

    def _where(self) -> tuple[Array, Array, Array, Array]:
        columns = self.columns
        sizes, steps = (np.array(each, np.int64) for each in (columns.sizes, columns.steps))
        return columns.source, columns.offsets[self.plan.sequence], sizes, steps

    def _wide(self) -> int:
        """Columns that are taken at a time, a multiple of every tile."""
        tile = loaded("dense").COLUMNS_16
        most = min(_WIDE // max(self.given.depth, 1), _SUMS // len(self.given.left))
        return max(min(most, self.columns.count + tile - 1) // tile, 1) * tile

    def _parts(self, wide: int) -> list[slice]:
        rows, depth = self.given.left.shape
        each = max(_WORK // max(rows * depth * wide, 1), 1) * wide
        return parallel.pieces(self.columns.count, each)


def sweep(
    left: Array, columns: Columns, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> Sweep | None:
    """What sums `left` (M, K) times the columns plus `bias` (M); None if the kernels cannot.

    Raises ModelError where magnitudes sum up to 2^62.
    """
    plan = None if accumulator.order.reorders else program(accumulator.order, terms)
    if plan is None or not plan.sequential or not left.size or not columns.count:
        return None
    # Any column whatever: what bounds the sums are the ends that no number is beyond.
    ends = np.broadcast_to(np.array(columns.ends), (left.shape[1], 2))
    given = checked(left, ends, bias, terms)
    if max(given.factors) >= panels.INT16 or given.bound >= _REACH:
        return None
    late = bias is not None and accumulator.bias == "last"
    if late or not blocks.hopes(given, terms, accumulator):
        return None
    return Sweep(given, columns, plan, accumulator, blocks.lane_bits(given, accumulator))
