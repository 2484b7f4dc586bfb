"""Divides the sums of a product among threads, in blocks of rows and columns."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_WIDE = 256
"""Columns that a kernel takes at once: their sums stay in the first-level cache."""
_WORK = 1 << 22
"""Products of a block of work: some milliseconds, so that threads finish together."""

BlockWork = Callable[[slice, int, Array], None]
"""Computes the sums of some rows and columns: it takes rows, the first column, and columns."""


def share(left: Array, right: Array, kind: Any, work: BlockWork) -> None:
    """Calls `work` for all blocks of `left` (M, K) times `right` (K, P), on the run's threads.

    Columns are of type `kind`, row after row, and stay in the second-level cache.
    """
    (rows, depth), columns = left.shape, right.shape[1]
    height = max(1, _WORK // max(depth * _WIDE, 1))
    parts = [(part, wide) for wide in parallel.pieces(columns, _WIDE)
             for part in parallel.pieces(rows, height)]  # fmt: skip

    def block(number: int) -> None:
        part, wide = parts[number]
        with np.errstate(all="ignore"):
            work(part, wide.start, np.ascontiguousarray(right[:, wide], kind))

    parallel.run_blocks(len(parts), block)
