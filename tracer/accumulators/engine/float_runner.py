"""Sums of products in float accumulators or block multiply-adds, and their statistics by node."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from threading import Lock
from typing import assert_never

import numpy as np

from tracer.accumulators.floats import compiled_sums, oracle
from tracer.accumulators.floats.casting import State
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.operand_format import BLOCKS
from tracer.accumulators.statistics.float_partial_sums import FloatTally
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.products import Place, PlacedProduct
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


@dataclass(frozen=True, slots=True)
class FloatSums:
    """Sums (M, P), each with what happened on its way.

    `values`, float32: what the accumulator holds at the end. `overflowed`, bool: whether a step
    left the range of a format. `terms`, integers: products other than 0; `swamped`: those among
    them that did not change the sum (of a block: of which alignment left no bit). `exact`, float64:
    the start and the same products, added one by one in float64.
    """

    values: Array
    overflowed: Array
    swamped: Array
    terms: Array
    exact: Array


def sum_products(
    left: Array,
    right: Array,
    start: Array | None,
    accumulator: FloatAccumulator | BlockFma,
    seed: int = 0,
    first_output: int = 0,
) -> FloatSums:
    """Returns the sums of `left` (M, K) times `right` (K, P), floats in the format of operands.

    `start` (M,) is the first term of each row of sums; None is 0. Operands are float32 numbers, of
    any float type; for a block multiply-add of operands with scales, they are scaled numbers, of
    which those of a block share a scale. Threads may call it at once. Raises UsageError where a
    block multiply-add gets operands that are not in its format.

    Stochastic rounding hashes the seeds (of the rule, and `seed`, say of the node), the index of
    the output and the step. Outputs count down the columns: (m, p) has the index `first_output` + p
    M + m. So the columns of a product may be summed in blocks: a block that begins with column c
    has `first_output` c M, and any division gives the same sums.
    """
    rows, columns = len(left), right.shape[1]
    begin = np.zeros(rows) if start is None else np.asarray(start, np.float64)
    first, indices = begin[:, None], None
    if isinstance(accumulator, FloatAccumulator) and accumulator.rounding.name == "sr":
        indices = np.arange(rows * columns).reshape(columns, rows).T + first_output
    sides = left, right
    is_turned = columns < rows  # vectors of the kernels have columns in their lanes
    if is_turned:
        sides, first = (right.T, left.T), first.T
        indices = None if indices is None else indices.T
    with np.errstate(all="ignore"):
        state = _summed(*sides, first, accumulator, seed, indices)
    single = state.values.astype(np.float32, copy=False)
    if isinstance(accumulator, BlockFma):  # NaN has the bits of its register's format
        unused = 23 - accumulator.register.fraction_bits
        nan = np.array([0x7FFFFFFF >> unused << unused], np.uint32).view(np.float32)
        single[np.isnan(single)] = nan
    arrays = single, state.overflowed, state.swamped, state.terms, state.exact
    return FloatSums(*(each.T if is_turned else each for each in arrays))


def _summed(
    left: Array, right: Array, start: Array, accumulator: FloatAccumulator | BlockFma, seed: int,
    indices: Array | None,
) -> State:  # fmt: skip
    """Returns the sums by the way that has the rule."""
    match accumulator:
        case FloatAccumulator():
            return compiled_sums.sequential(left, right, start, accumulator, seed, indices)
        case BlockFma(rule="aligned"):
            return compiled_sums.blocks(left, right, start, accumulator)
        case BlockFma():
            factors, columns = (np.asarray(side, np.float64) for side in (left, right))
            begin = np.broadcast_to(start, (len(left), right.shape[1]))
            return oracle.blocks(factors, columns, begin, accumulator)
        case _:
            assert_never(accumulator)
