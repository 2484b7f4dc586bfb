"""Which sums of a block can leave a range, and those emulated alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracer.accumulators.engine import blocks
from tracer.accumulators.engine.matrices import Operands
from tracer.accumulators.engine.panels import INT16
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.sums import Clipped
from tracer.interpreter.numeric import parallel, products
from tracer.support.types import Array

_MANY = 128
"""One in so many sums of rows: from there all of them are emulated."""
_GATHERED = 1 << 20
"""Products that are written out at a time for sums that lie here and there."""


def bounded(given: Operands, accumulator: Accumulator) -> tuple[Array, Array]:
    """The exact sums (M, P), int64, and where a sum on the way to them may be out of the range.

    On the way to y no sum is below y - P or above y + N, where P and N are what the products of
    either sign come to: whatever the order. Rows that the range of the columns' numbers keeps
    within are done with one product; for the others A, the sum of magnitudes, has a product of
    its own, and P = (A + y) / 2.
    """
    low, high = accumulator.range
    final = _product(given)
    outside = np.zeros(given.shape, bool)
    doubtful = np.flatnonzero((given.least < low) | (given.most > high))
    if len(doubtful):
        sizes = _product(_magnitudes(_part(given, doubtful)))
        bias, sums = given.bias[doubtful], final[doubtful]
        up = (sizes + sums) // 2 + np.maximum(bias, 0)
        down = (sums - sizes) // 2 + np.minimum(bias, 0)
        outside[doubtful] = (down < low) | (up > high)
    final += given.bias
    return final, outside


def exact(given: Operands) -> Array:
    """The sums that nothing limits, int64."""
    return _product(given) + given.bias


def kept(final: Array) -> Clipped:
    """The clipped sums where none overflows: `final` themselves."""
    return Clipped(final, np.broadcast_to(np.int64(0), final.shape))


def emulated(
    given: Operands, terms: Terms, accumulator: Accumulator, final: Array, outside: Array
) -> Clipped:
    """The clipped sums: `final` but for those `outside`, which are emulated."""
    rows = np.flatnonzero(outside.any(1))
    count = np.count_nonzero(outside)
    if not count:
        return kept(final)
    if count * _MANY >= len(rows) * given.shape[1] or given.depth == 0:
        made = blocks.emulated(_part(given, rows), terms, accumulator)
        if len(rows) == len(final):
            return made
        values, events = final.copy(), np.zeros(given.shape, np.int64)
        values[rows], events[rows] = made.values, made.events
        return Clipped(values, events)
    values, events = final.copy(), np.zeros(given.shape, np.int64)
    some = np.argwhere(outside)
    for piece in parallel.pieces(len(some), max(_GATHERED // given.depth, 1)):
        row, column = some[piece].T
        made = blocks.emulated(_gathered(given, row, column), terms, accumulator)
        values[row, column], events[row, column] = made.values[0], made.events[0]
    return Clipped(values, events)


def _product(given: Operands) -> Array:
    """The exact products without the bias, int64."""
    reach = Accumulator(32)
    bare = replace(given, bias=np.zeros_like(given.bias))
    if max(*given.factors, given.bound) < reach.range[1]:
        return blocks.emulated(bare, Terms(given.depth), reach).values
    final = np.empty(given.shape, np.int64)
    products.integers(given.left, given.right, final)
    return final


def _magnitudes(given: Operands) -> Operands:
    """The same sums of magnitudes."""
    kind = np.int16 if max(given.factors) < INT16 else np.int64
    left, right = (np.abs(side.astype(kind)) for side in (given.left, given.right))
    most = given.factors[1] * left.sum(1, np.int64)
    return replace(given, left=left, right=right, span=(0, given.factors[1]), most=most,
                   least=np.zeros_like(most), bound=int(most.max(initial=0)))  # fmt: skip


def _part(given: Operands, rows: Array) -> Operands:
    """The sums of some rows."""
    return replace(
        given,
        left=given.left[rows],
        bias=given.bias[rows],
        largest=given.largest[rows],
        least=given.least[rows],
        most=given.most[rows],
    )


def _gathered(given: Operands, rows: Array, columns: Array) -> Operands:
    """Sums that lie here and there, as one row of ones times their products."""
    terms = given.left[rows].T.astype(np.int64) * given.right[:, columns]
    ones = np.ones((1, given.depth), np.int64)
    one, bound = np.ones(1, np.int64), np.full(1, given.bound)
    return Operands(ones, np.ascontiguousarray(terms), given.bias[rows].T, (1, given.term),
                    (-given.term, given.term), one, -bound, bound, given.bound)  # fmt: skip
