"""Arranges matrices for the lanes of a kernel, and distributes blocks of sums over threads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.accumulators.engine.matrices import INT16, Matrices
from tracer.accumulators.kernels import loaded
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.types import Array

_WORK = 1 << 23
"""Products of one block of work: long compared with handing it to a thread."""
_PANEL = 1 << 18
"""Elements of a block's columns, in the second-level cache."""


@dataclass(frozen=True, slots=True)
class Panels:
    """Factors and columns in the lanes of a kernel; `cell` is the type of a panel's elements.

    `sequence` (K), int64, is the order of the terms. `pairs` holds the factors of two terms in one
    int32 where lanes take terms in pairs; else it is `left`.
    """

    left: Array
    pairs: Array
    right: Array
    sequence: Array
    depth: int
    tile: int
    lane: np.dtype[Any]
    cell: np.dtype[Any]

    def panel(self, columns: slice) -> Array:
        """Packs the columns in tiles."""
        kernels = loaded("tile_io")
        tiles = -(-(columns.stop - columns.start) // self.tile)
        panel = np.empty(tiles * self.depth * self.tile, self.cell)
        pack = kernels.pack if self.pairs is self.left else kernels.pack_pairs
        pack(self.right, self.sequence, columns.start, columns.stop, self.depth, self.tile, panel)
        return panel


def for_loops(matrices: Matrices, sequence: Array, tile: int, lane: np.dtype[Any]) -> Panels:
    """Panels for `program_sums`, whose elements have the type of a lane."""
    left = matrices.left[:, sequence].astype(lane, order="C")
    return Panels(left, left, matrices.right, sequence, len(sequence), tile, lane, lane)


def for_vectors(matrices: Matrices, sequence: Array, bits: int) -> Panels:
    """Panels for kernels of `llvm_sums`, in lanes of `bits`; zeros fill bands and DEPTH_STEPs."""
    kernels = loaded("sequential_sums")
    paired = bits == 32 and max(matrices.factors) < INT16
    tile = kernels.COLUMNS_16 if bits == 16 else kernels.COLUMNS_32
    depth = -(-len(sequence) // kernels.DEPTH_STEP) * kernels.DEPTH_STEP
    rows = -(-len(matrices.left) // kernels.ROWS) * kernels.ROWS
    left = buffer_pool.empty((rows, depth), np.int32)
    pairs = buffer_pool.empty((rows, depth // 2), np.int32) if paired else left
    lanes = kernels.NARROW if bits == 16 else kernels.PAIRED if paired else kernels.WIDE
    kernels.lay_out_factors(matrices.left, sequence, lanes, left, pairs)
    lane, cell = np.dtype(f"int{bits}"), np.dtype(np.int16 if paired else f"int{bits}")
    return Panels(left, pairs, matrices.right, sequence, depth, tile, lane, cell)


def run_in_blocks(shape: tuple[int, int], panels: Panels, work: Callable[..., None]) -> None:
    """Calls `work(rows, columns)`, two slices, for blocks that depend on the shape alone."""
    rows, columns = shape
    band = loaded("sequential_sums").ROWS
    depth = max(panels.depth, 1)
    width = min(_WORK // (depth * rows), _PANEL // depth)
    width = max(width // panels.tile, 1) * panels.tile
    height = max(_WORK // (depth * width) // band, 1) * band
    jobs = [
        (block_rows, block_columns)
        for block_columns in parallel.pieces(columns, width)
        for block_rows in parallel.pieces(rows, height)
    ]
    parallel.run_blocks(len(jobs), lambda index: work(*jobs[index]))


def whole_bands(rows: slice) -> tuple[slice, slice]:
    """The bands of ROWS rows that the rows touch, and the rows of those bands."""
    band = loaded("sequential_sums").ROWS
    bands = slice(rows.start // band, -(-rows.stop // band))
    return bands, slice(bands.start * band, bands.stop * band)
