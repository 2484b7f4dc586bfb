"""Sums by the tiles of `interpreter.kernels.tiles`: limited, counted or observed, in any tree.

Lanes are float32 where that is exact, else float64; `kernels.steps` explains when they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracer.accumulators.engine.matrices import Matrices
from tracer.accumulators.engine.programs import Program, products_may_change
from tracer.accumulators.engine.tile_tables import TileTables
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.modes import Overflow, effect_of
from tracer.accumulators.statistics.tally import Tally
from tracer.interpreter.numeric import parallel, tile_tasks
from tracer.interpreter.numeric.tile_tasks import Columns, Groups, Lanes
from tracer.support.types import Array

_EXACT = {32: 1 << 24, 64: 1 << 53}
"""Floats of so many bits hold every integer up to these."""


def limited_bits(matrices: Matrices, plan: Program | None, accumulator: Accumulator) -> int:
    """The bits of the smallest floats in which limited sums are exact; 0 if there are none."""
    if not _suits(matrices, plan, accumulator):
        return 0
    overflow = _overflow(matrices, accumulator)
    most = min(accumulator.range[1], matrices.bound) + 1
    if effect_of(overflow).outside == "any":  # what becomes of a sum depends on all of its digits
        bias = int(np.abs(matrices.bias).max(initial=0))
        most += max(most, matrices.largest_term, bias)
    return _smallest(matrices, 2 * most) if overflow in loaded("steps").RULES else 0


def exact_bits(matrices: Matrices, plan: Program | None, accumulator: Accumulator) -> int:
    """The bits of the smallest floats in which sums without a range are exact; 0 if none."""
    return _smallest(matrices, 2 * matrices.bound) if _suits(matrices, plan, accumulator) else 0


def _suits(matrices: Matrices, plan: Program | None, accumulator: Accumulator) -> bool:
    """Whether tiles have the order of these sums, with one bias for each row."""
    if plan is None or accumulator.order.reorders or not plan.has_one_width:
        return False
    return matrices.bias.shape[1] == 1 and not products_may_change(matrices, accumulator)


def _overflow(matrices: Matrices, accumulator: Accumulator) -> Overflow:
    """The overflow mode; where no sum leaves the range, the simplest one."""
    return accumulator.overflow if matrices.bound > accumulator.range[1] else "saturate"


def _smallest(matrices: Matrices, most: int) -> int:
    if not matrices.depth:
        return 0
    largest = max(*matrices.factors, most)
    return next((bits for bits, limit in _EXACT.items() if largest <= limit), 0)


@dataclass(frozen=True)
class Factors:
    """The rows of a matrix (M, K) as floats, in the order of the terms; `bias` (M), int64.

    No partial sum has a magnitude above `bound`.
    """

    left: Array
    bias: Array
    groups: Groups
    accumulator: Accumulator
    overflow: Overflow
    bound: int

    @classmethod
    def of(cls, matrices: Matrices, plan: Program, accumulator: Accumulator, bits: int) -> Factors:
        """The left matrix, in floats of `bits`, with a bias for each row."""
        in_order = np.array_equal(plan.sequence, np.arange(matrices.depth))
        left = matrices.left if in_order else matrices.left[:, plan.sequence]
        bias = np.broadcast_to(matrices.bias[:, 0], len(left))
        return cls(left.astype(f"float{bits}"), bias, plan.groups, accumulator,
                   _overflow(matrices, accumulator), matrices.bound)  # fmt: skip

    def clip(
        self, columns: Columns, values: Array, events: Array | None,
        parameters: Array | None = None,
    ) -> None:  # fmt: skip
        """Writes limited sums, and the number of steps that left the range if asked.

        Without events `parameters` (M, 8) may say what bytes are written in place of sums.
        """
        steps, stores = loaded("steps"), loaded("stores")
        if events is None:
            store = stores.VALUES if parameters is None else stores.BYTES
            self._limit(steps.limiting(self.overflow), store, columns, [values], parameters)
        else:
            store = stores.VALUES_AND_EVENTS
            self._limit(steps.counting(self.overflow), store, columns, [values, events], None)

    def count(self, columns: Columns, out: Array, parameters: Array | None, rare: bool) -> Array:
        """Writes limited sums, or bytes by `parameters` (M, 8); returns counts of `stores`, (4).

        `rare` is faster where few sums leave the range; sums without a range must be exact.
        """
        steps, stores = loaded("steps"), loaded("stores")
        if rare:
            step, store = steps.EXTREMES, stores.rare_counts(self.overflow, parameters is not None)
        else:
            step = steps.counting(self.overflow)
            store = stores.COUNTS if parameters is None else stores.BYTES_AND_COUNTS
        tables = np.zeros((parallel.allowed(), stores.COUNTS_SIZE), np.int64)
        self._limit(step, store, columns, [out], parameters, tables)
        counts: Array = tables.sum(0)[:4]
        return counts

    def tally(self, columns: Columns, out: Array, parameters: Array | None) -> Tally:
        """Writes limited sums, or bytes by `parameters` (M, 8); returns statistics by row.

        Sums without a range must be exact.
        """
        store = loaded("tally_stores").tally(self.overflow, parameters is not None)
        tables = TileTables.empty(8 * self.left.itemsize, len(self.left))
        step = loaded("steps").EXTREMES
        self._limit(step, store, columns, [out], parameters, tables.words)
        return tables.tally(columns.count, self.accumulator)

    def observe(self, columns: Columns, final: Array, low: Array, high: Array) -> None:
        """Writes sums without a range, and their extremes on the way from 0."""
        store = loaded("stores").SUMS_AND_EXTREMES
        self._run(loaded("steps").EXTREMES, store, columns, [final, low, high], Lanes(), None)

    def _limit(
        self, step: Any, store: Any, columns: Columns, outs: list[Array],
        parameters: Array | None, tables: Array | None = None,
    ) -> None:  # fmt: skip
        half = 0 if self.accumulator.is_symmetric else 1
        most = min(self.accumulator.range[1], self.bound)
        self._run(step, store, columns, outs, Lanes(2 * most + half, half), parameters, tables)

    def _run(
        self, step: Any, store: Any, columns: Columns, outs: list[Array], lanes: Lanes,
        parameters: Array | None, tables: Array | None = None,
    ) -> None:  # fmt: skip
        parts = columns.matrices
        left = self.left.reshape(parts, -1, self.left.shape[1])
        bias = self.bias.reshape(parts, -1)
        ends = None if self.accumulator.is_bias_first else bias.astype(left.dtype)
        begins = (bias * (ends is None) + 0.5 * lanes.half).astype(left.dtype)
        if parameters is not None:
            parameters = parameters.reshape(parts, -1, parameters.shape[1])
        step = replace(step, grouped=self.groups.registers > 0, ends=ends is not None)
        flat = [out.reshape(-1) for out in outs]
        tile_tasks.run(step, store, left, begins, columns, flat, lanes, parameters, ends,
                       self.groups, tables)  # fmt: skip


def of_matrix(matrices: Matrices, sequence: Array) -> Columns:
    """The columns of the right matrix, in the order of the terms, for results (M, P)."""
    columns = matrices.right.shape[1]
    return Columns(matrices.right.reshape(-1), sequence * columns, (1, 1, columns),
                   (0, 0, 1), (0, columns, 1))  # fmt: skip
