"""Computes the sums of one node in its float accumulator, and collects their statistics."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock

import numpy as np

from tracer.accumulators.floats.sums import sum_products
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.operand_format import BLOCKS
from tracer.accumulators.statistics.float_tally import FloatTally
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.convolution import Place, PlacedProduct
from tracer.support.types import Array

_SEEDS = 1 << 32
"""Seeds of nodes lie below it, so that those of their groups are different."""
_GATHERED = 1 << 20
"""Terms in another order that are gathered at a time, with zeros that fill up blocks."""
_GROUPS = 1 << 24
"""The same of groups and products."""


class FloatRunner:
    """Sums products in blocks, from several threads.

    Stochastic rounding depends on `seed`, on the group, and on the number of the sum among all sums
    of the node, of earlier runs too. A column of sums (all output channels at one position) is
    numbered after those of the images or matrices before it. So batches of any size give the same
    sums, as long as the batch is the first axis and the node runs once for each batch.
    """

    def __init__(
        self, accumulator: FloatAccumulator | BlockFma, tally: FloatTally, seed: int
    ) -> None:
        """`tally` has the names of accumulator and operands; sums are added to it."""
        self.accumulator = accumulator
        self.tally = tally
        self._seed = seed % _SEEDS
        self._columns: dict[int, int] = defaultdict(int)
        self._lock = Lock()

    @property
    def has_run(self) -> bool:
        """Whether the node has computed anything."""
        return any(self._columns.values())

    @property
    def block(self) -> int | None:
        """Neighbouring terms that share scales, which stay apart; None if there are none."""
        if not isinstance(self.accumulator, BlockFma):
            return None
        return BLOCKS.get(self.accumulator.scaling)

    def product(
        self, columns: int, start: Array | None, order: Array | None = None, number: int = 0
    ) -> PlacedProduct:
        """Returns the product of the next run, which has so many `columns` in all.

        `start` has the first term of each output channel, those of the first group first. `order`
        are the indices of the terms in the order in which they are added, and -1 for a term of 0;
        None is 0, 1, 2 and so on. A node with several products for each sample gives each its own
        `number`.
        """
        first = self._columns[number]
        self._columns[number] += columns

        def product(left: Array, right: Array, out: Array, place: Place) -> None:
            rows = slice(place.group * len(left), (place.group + 1) * len(left))
            begin = None if start is None else start[rows]
            seed = self._seed + (place.group + number * _GROUPS) * _SEEDS
            column = first + place.column
            if order is None:
                out[...] = self._sums(left, right, begin, seed, column)
                return
            ordered = _gathered(left, order)
            for part in parallel.pieces(right.shape[1], max(_GATHERED // len(order), 1)):
                some = _gathered(right[:, part].T, order).T
                out[:, part] = self._sums(ordered, some, begin, seed, column + part.start)

        return product

    def _sums(
        self, left: Array, right: Array, start: Array | None, seed: int, column: int
    ) -> Array:
        """The sums of a block whose first column has a number; adds to the statistics."""
        sums = sum_products(left, right, start, self.accumulator, seed, column * len(left))
        part = FloatTally.empty(self.tally.accumulator, self.tally.operands).plus(
            sums.values, sums.overflowed, sums.swamped, sums.terms, sums.exact
        )
        with self._lock:
            self.tally = self.tally.merged(part)
        return sums.values


def _gathered(rows: Array, order: Array) -> Array:
    """The terms of rows (N, K) in an order; that at -1 is 0."""
    return np.pad(rows, ((0, 0), (0, 1)))[:, order]
