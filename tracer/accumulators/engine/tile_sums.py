"""Sums by the tiles of `interpreter.kernels.tiles`: sequential, and saturating or observed.

Lanes are float32 where that is exact, else float64; `kernels.steps` explains when they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine.matrices import Matrices
from tracer.accumulators.engine.tile_tables import TileTables
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics.tally import Tally
from tracer.interpreter.numeric import parallel, tile_tasks
from tracer.interpreter.numeric.tile_tasks import Columns, Lanes
from tracer.support.types import Array

_EXACT = {32: 1 << 24, 64: 1 << 53}
"""Floats of so many bits hold every integer up to these."""


def limited_bits(matrices: Matrices, accumulator: Accumulator) -> int:
    """The bits of the smallest floats in which limited sums are exact; 0 if there are none."""
    return _smallest(matrices, 2 * (min(accumulator.range[1], matrices.bound) + 1))


def exact_bits(matrices: Matrices) -> int:
    """The bits of the smallest floats in which sums without a range are exact; 0 if none."""
    return _smallest(matrices, 2 * matrices.bound)


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
    bound: int

    @classmethod
    def of(cls, matrices: Matrices, sequence: Array, bits: int) -> Factors:
        """The left matrix, in floats of `bits`, with a bias for each row."""
        in_order = np.array_equal(sequence, np.arange(matrices.depth))
        left = matrices.left if in_order else matrices.left[:, sequence]
        bias = np.broadcast_to(matrices.bias[:, 0], len(left))
        return cls(left.astype(f"float{bits}"), bias, matrices.bound)

    def clip(
        self, columns: Columns, accumulator: Accumulator, values: Array, events: Array | None,
        parameters: Array | None = None,
    ) -> None:  # fmt: skip
        """Writes limited sums, and the number of steps that left the range if asked.

        Without events `parameters` (M, 8) may say what bytes are written in place of sums.
        """
        steps, stores = loaded("steps"), loaded("stores")
        if events is None:
            store = stores.VALUES if parameters is None else stores.BYTES
            self._run(steps.CLIP, store, columns, [values], accumulator, parameters)
        else:
            store = stores.VALUES_AND_EVENTS
            self._run(steps.COUNT, store, columns, [values, events], accumulator)

    def count(
        self, columns: Columns, accumulator: Accumulator, out: Array, parameters: Array | None,
        rare: bool,
    ) -> Array:  # fmt: skip
        """Writes limited sums, or bytes by `parameters` (M, 8); returns counts of `stores`, (4).

        `rare` is faster where few sums leave the range; sums without a range must be exact.
        """
        steps, stores = loaded("steps"), loaded("stores")
        tables = np.zeros((parallel.allowed(), stores.COUNTS_SIZE), np.int64)
        if rare:
            step = steps.EXTREMES
            store = stores.RARE_COUNTS if parameters is None else stores.BYTES_AND_RARE_COUNTS
        else:
            step = steps.COUNT
            store = stores.COUNTS if parameters is None else stores.BYTES_AND_COUNTS
        self._run(step, store, columns, [out], accumulator, parameters, tables)
        counts: Array = tables.sum(0)[:4]
        return counts

    def tally(
        self, columns: Columns, accumulator: Accumulator, out: Array, parameters: Array | None
    ) -> Tally:
        """Writes limited sums, or bytes by `parameters` (M, 8); returns statistics by row.

        Sums without a range must be exact.
        """
        stores = loaded("tally_stores")
        store = stores.TALLY if parameters is None else stores.BYTES_AND_TALLY
        tables = TileTables.empty(8 * self.left.itemsize, len(self.left))
        step = loaded("steps").EXTREMES
        self._run(step, store, columns, [out], accumulator, parameters, tables.words)
        return tables.tally(columns.count, accumulator)

    def observe(self, columns: Columns, final: Array, low: Array, high: Array) -> None:
        """Writes sums without a range, and their extremes on the way from 0."""
        store = loaded("stores").SUMS_AND_EXTREMES
        self._run(loaded("steps").EXTREMES, store, columns, [final, low, high], None)

    def _run(
        self, step: object, store: object, columns: Columns, outs: list[Array],
        accumulator: Accumulator | None, parameters: Array | None = None,
        tables: Array | None = None,
    ) -> None:  # fmt: skip
        half = 0 if accumulator is None or accumulator.is_symmetric else 1
        most = 0 if accumulator is None else min(accumulator.range[1], self.bound)
        begins = (self.bias + 0.5 * half).astype(self.left.dtype)
        flat = [out.reshape(-1) for out in outs]
        lanes = Lanes(2 * most + half, half)
        parts = columns.matrices
        left, begins = self.left.reshape(parts, -1, self.left.shape[1]), begins.reshape(parts, -1)
        if parameters is not None:
            parameters = parameters.reshape(parts, -1, parameters.shape[1])
        tile_tasks.run(step, store, left, begins, columns, flat, lanes, parameters, tables)


def of_matrix(matrices: Matrices, sequence: Array) -> Columns:
    """The columns of the right matrix, in the order of the terms, for results (M, P)."""
    columns = matrices.right.shape[1]
    return Columns(matrices.right.reshape(-1), sequence * columns, (1, 1, columns),
                   (0, 0, 1), (0, columns, 1))  # fmt: skip
