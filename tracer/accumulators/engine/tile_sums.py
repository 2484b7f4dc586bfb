"""Sums by the tiles of `interpreter.kernels.tiles`: limited, counted or observed.

`sum_lanes` says which sums tiles compute exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracer.accumulators.engine.matrices import Matrices
from tracer.accumulators.engine.programs import Program
from tracer.accumulators.engine.sum_lanes import SumLanes
from tracer.accumulators.engine.tile_tables import TileTables
from tracer.accumulators.kernels import loaded
from tracer.accumulators.statistics.tally import Tally
from tracer.interpreter.numeric import parallel, tile_tasks
from tracer.interpreter.numeric.tile_tasks import Columns, Groups
from tracer.support.types import Array


@dataclass(frozen=True)
class Factors:
    """The rows of a matrix (M, K) as floats, in the order of the terms; `bias` (M), int64."""

    left: Array
    bias: Array
    lanes: SumLanes
    groups: Groups

    @classmethod
    def of(cls, lanes: SumLanes, plan: Program, bits: int) -> Factors:
        """The left matrix, in floats of `bits`, with a bias for each row."""
        matrices = lanes.matrices
        in_order = np.array_equal(plan.sequence, np.arange(matrices.depth))
        left = matrices.left if in_order else matrices.left[:, plan.sequence]
        floats = left.astype(f"float{bits}")
        if lanes.accumulator.product_shift:
            floats *= 2.0**-lanes.accumulator.product_shift
        return cls(floats, np.broadcast_to(matrices.bias[:, 0], len(left)), lanes, plan.groups)

    def clip(
        self, columns: Columns, values: Array, events: Array | None,
        parameters: Array | None = None,
    ) -> None:  # fmt: skip
        """Writes limited sums, and the number of steps that left the range if asked.

        Without events `parameters` (M, 8) may say what bytes are written in place of sums.
        """
        steps, stores, overflow = loaded("steps"), loaded("stores"), self.lanes.overflow
        if events is None:
            store = stores.VALUES if parameters is None else stores.BYTES
            self._run(steps.limiting(overflow), store, columns, [values], True, parameters)
        else:
            store = stores.VALUES_AND_EVENTS
            self._run(steps.counting(overflow), store, columns, [values, events], True)

    def count(self, columns: Columns, out: Array, parameters: Array | None, rare: bool) -> Array:
        """Writes limited sums, or bytes by `parameters` (M, 8); returns counts of `stores`, (4).

        `rare` is faster where few sums leave the range; sums without a range must be exact.
        """
        steps, stores, overflow = loaded("steps"), loaded("stores"), self.lanes.overflow
        if rare:
            step, store = steps.EXTREMES, stores.rare_counts(overflow, parameters is not None)
        else:
            step = steps.counting(overflow)
            store = stores.COUNTS if parameters is None else stores.BYTES_AND_COUNTS
        tables = np.zeros((parallel.allowed(), stores.COUNTS_SIZE), np.int64)
        self._run(step, store, columns, [out], True, parameters, tables)
        counts: Array = tables.sum(0)[:4]
        return counts

    def tally(self, columns: Columns, out: Array, parameters: Array | None) -> Tally:
        """Writes limited sums, or bytes by `parameters` (M, 8); returns statistics by row.

        Sums without a range must be exact.
        """
        store = loaded("tally_stores").tally(self.lanes.overflow, parameters is not None)
        tables = TileTables.empty(8 * self.left.itemsize, len(self.left))
        step = loaded("steps").EXTREMES
        self._run(step, store, columns, [out], True, parameters, tables.words)
        return tables.tally(columns.count, self.lanes.accumulator)

    def observe(self, columns: Columns, final: Array, low: Array, high: Array) -> None:
        """Writes sums without a range, and their extremes on the way from 0."""
        step, store = loaded("steps").EXTREMES, loaded("stores").SUMS_AND_EXTREMES
        self._run(step, store, columns, [final, low, high], False)

    def own_events(self, columns: Columns, final: Array, events: Array) -> None:
        """Writes sums without a range, and the steps that left a register with its own width."""
        store = loaded("stores").VALUES_AND_EVENTS
        self._run(loaded("steps").FREE, store, columns, [final, events], False)

    def _run(
        self, step: Any, store: Any, columns: Columns, outs: list[Array], limited: bool,
        parameters: Array | None = None, tables: Array | None = None,
    ) -> None:  # fmt: skip
        parts, lanes = columns.matrices, self.lanes.lanes(limited)
        left = self.left.reshape(parts, -1, self.left.shape[1])
        bias = self.bias.reshape(parts, -1)
        ends = None if self.lanes.accumulator.is_bias_first else bias.astype(left.dtype)
        begins = (bias * (ends is None) + 0.5 * lanes.half).astype(left.dtype)
        if parameters is not None:
            parameters = parameters.reshape(parts, -1, parameters.shape[1])
        step = replace(step, grouped=self.groups.registers > 0, ends=ends is not None,
                       inner=self._inner(step), product=self.lanes.product)  # fmt: skip
        flat = [out.reshape(-1).view(f"i{out.itemsize}") for out in outs]
        tile_tasks.run(step, store, left, begins, columns, flat, lanes, parameters, ends,
                       self.groups, tables)  # fmt: skip

    def _inner(self, step: Any) -> Any:
        """The step of register 0, if it has a range of its own."""
        inner, steps = self.lanes.inner, loaded("steps")
        if inner is None:
            return None
        same = steps.counting if step.states == 1 else steps.limiting
        return same(inner.overflow).code


def of_matrix(matrices: Matrices, sequence: Array) -> Columns:
    """The columns of the right matrix, in the order of the terms, for results (M, P)."""
    columns = matrices.right.shape[1]
    return Columns(matrices.right.reshape(-1), sequence * columns, (1, 1, columns),
                   (0, 0, 1), (0, columns, 1))  # fmt: skip
