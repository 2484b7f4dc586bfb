"""Arranges matrices for loops over lanes, and distributes blocks of sums over threads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.accumulators.engine.matrices import Matrices
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_WORK = 1 << 23
"""Products of one block of work: long compared with handing it to a thread."""
_PANEL = 1 << 18
"""Elements of a block's columns, in the second-level cache."""


@dataclass(frozen=True, slots=True)
class Panels:
    """Factors and columns of the type of a lane, in the order of the terms.

    `sequence` (K), int64, is that order.
    """

    left: Array
    right: Array
    sequence: Array
    tile: int
    lane: np.dtype[Any]

    @property
    def depth(self) -> int:
        """The number of terms."""
        return len(self.sequence)

    def panel(self, columns: slice) -> Array:
        """The columns, flat: one tile after the other, its terms in order; zeros fill the last."""
        count = columns.stop - columns.start
        tiles = -(-count // self.tile)
        wide = np.zeros((self.depth, tiles * self.tile), self.lane)
        wide[:, :count] = self.right[self.sequence, columns]
        return wide.reshape(self.depth, tiles, self.tile).swapaxes(0, 1).reshape(-1)


def for_loops(matrices: Matrices, sequence: Array, tile: int, lane: np.dtype[Any]) -> Panels:
    """Panels for `program_sums`."""
    left = matrices.left[:, sequence].astype(lane, order="C")
    return Panels(left, matrices.right, sequence, tile, lane)


def run_in_blocks(shape: tuple[int, int], panels: Panels, work: Callable[..., None]) -> None:
    """Calls `work(rows, columns)`, two slices, for blocks that depend on the shape alone."""
    rows, columns = shape
    depth = max(panels.depth, 1)
    width = min(_WORK // (depth * rows), _PANEL // depth)
    width = max(width // panels.tile, 1) * panels.tile
    height = max(_WORK // (depth * width), 1)
    jobs = [
        (block_rows, block_columns)
        for block_columns in parallel.pieces(columns, width)
        for block_rows in parallel.pieces(rows, height)
    ]
    parallel.run_blocks(len(jobs), lambda index: work(*jobs[index]))
