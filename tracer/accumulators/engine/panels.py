"""Operands laid out for the lanes of a kernel, and their blocks shared out to threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.accumulators.engine.matrices import Operands
from tracer.accumulators.engine.programs import Program
from tracer.accumulators.kernels import loaded
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.types import Array

INT16 = 1 << 15
"""Magnitudes below it fit int16."""
_WORK = 1 << 23
"""Products of one block of work: long against handing it to a thread."""
_PANEL = 1 << 18
"""Elements of a block's columns, in the second-level cache."""


@dataclass(frozen=True, slots=True)
class Panels:
    """Operands in the lanes of a kernel; `cell` is what a panel of columns consists of.

    `pairs` are the factors of two terms each, where lanes take them so; else `left` itself.
    """

    left: Array
    pairs: Array
    right: Array
    sequence: Array
    depth: int
    tile: int
    lane: np.dtype[Any]
    cell: np.dtype[Any]

    def rows(self, some: slice) -> Array:
        """The factors of some rows and, where there are, of those up to a whole band, flat."""
        return self.left[some.start : some.stop + loaded("sequential_sums").ROWS - 1].reshape(-1)

    def panel(self, part: slice) -> Array:
        """Columns in tiles."""
        kernels = loaded("tile_io")
        tiles = -(-(part.stop - part.start) // self.tile)
        made = np.empty(tiles * self.depth * self.tile, self.cell)
        pack = kernels.pack if self.pairs is self.left else kernels.pack_pairs
        pack(self.right, self.sequence, part.start, part.stop, self.depth, self.tile, made)
        return made


def plain(given: Operands, plan: Program, tile: int, lane: np.dtype[Any]) -> Panels:
    """Lanes of the type of their operands."""
    ordered = given.left[:, plan.sequence].astype(lane, order="C")
    return Panels(
        ordered, ordered, given.right, plan.sequence, len(plan.sequence), tile, lane, lane
    )


def dense(given: Operands, plan: Program, bits: int) -> Panels:
    """For the kernels of `dense`, in lanes of so many bits; whole bands and groups of terms."""
    kernels = loaded("sequential_sums")
    paired = bits == 32 and max(given.factors) < INT16
    tile = kernels.COLUMNS_16 if bits == 16 else kernels.COLUMNS_32
    depth = -(-len(plan.sequence) // kernels.GROUP) * kernels.GROUP
    rows = -(-len(given.left) // kernels.ROWS) * kernels.ROWS
    left = buffer_pool.empty((rows, depth), np.int32)
    pairs = buffer_pool.empty((rows, depth // 2), np.int32) if paired else left
    kind = kernels.NARROW if bits == 16 else kernels.PAIRED if paired else kernels.WIDE
    kernels.spread(given.left, plan.sequence, kind, left, pairs)
    lane, cell = np.dtype(f"int{bits}"), np.dtype(np.int16 if paired else f"int{bits}")
    return Panels(left, pairs, given.right, plan.sequence, depth, tile, lane, cell)


def shared_out(given: Operands, panels: Panels, work: Callable[[slice, slice], None]) -> None:
    """Call `work` for blocks of rows and columns, which the shapes alone decide."""
    rows, columns = given.shape
    band = loaded("sequential_sums").ROWS
    depth = max(panels.depth, 1)
    wide = min(_WORK // (depth * rows), _PANEL // depth)
    wide = max(wide // panels.tile, 1) * panels.tile
    tall = max(_WORK // (depth * wide) // band, 1) * band
    jobs = [
        (some, part)
        for part in parallel.pieces(columns, wide)
        for some in parallel.pieces(rows, tall)
    ]
    parallel.run_blocks(len(jobs), lambda index: work(*jobs[index]))
