"""Which sums of a block can leave a range, and those emulated alone."""

from __future__ import annotations

import numpy as np

from tracer.interpreter import parallel, products
from tracer.interpreter.arithmetic import blocks
from tracer.interpreter.arithmetic.accumulator import Accumulator
from tracer.interpreter.arithmetic.matrices import LIMIT, Operands
from tracer.interpreter.arithmetic.orders import Terms
from tracer.interpreter.arithmetic.sums import Clipped
from tracer.interpreter.values import Array

_MANY = 16
"""One in so many sums of rows and columns: from there all of them are emulated."""
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
    final = np.empty(given.shape, np.int64)
    products.integers(given.left, given.right, final)
    outside = np.zeros(given.shape, bool)
    least, most = _of_rows(given)
    doubtful = np.flatnonzero((least < low) | (most > high))
    if len(doubtful):
        sizes = np.empty((len(doubtful), given.shape[1]), np.int64)
        products.integers(np.abs(given.left[doubtful].astype(np.int64)),
                          np.abs(given.right.astype(np.int64)), sizes)  # fmt: skip
        bias, sums = given.bias[doubtful], final[doubtful]
        up = (sizes + sums) // 2 + np.maximum(bias, 0)
        down = (sums - sizes) // 2 + np.minimum(bias, 0)
        outside[doubtful] = (down < low) | (up > high)
    final += given.bias
    return final, outside


def emulated(
    given: Operands, terms: Terms, accumulator: Accumulator, final: Array, outside: Array
) -> Clipped:
    """The clipped sums: `final` but for those `outside`, which are emulated."""
    values, events = final.copy(), np.zeros(given.shape, np.int64)
    rows, columns = (np.flatnonzero(outside.any(axis)) for axis in (1, 0))
    many = np.count_nonzero(outside) * _MANY >= len(rows) * len(columns)
    if not len(rows):
        return Clipped(values, events)
    if many or given.depth == 0:
        part = _part(given, rows, columns)
        made = blocks.emulated(part, terms, accumulator)
        where = np.ix_(rows, columns)
        values[where], events[where] = made.values, made.events
        return Clipped(values, events)
    some = np.argwhere(outside)
    for piece in parallel.pieces(len(some), max(_GATHERED // given.depth, 1)):
        row, column = some[piece].T
        made = blocks.emulated(_gathered(given, row, column), terms, accumulator)
        values[row, column], events[row, column] = made.values[0], made.events[0]
    return Clipped(values, events)


def _of_rows(given: Operands) -> tuple[Array, Array]:
    """What no sum of each row goes below or above, by the range of the columns' numbers."""
    rows = len(given.left)
    if not given.right.size or given.depth * given.term >= LIMIT:  # products may leave 64 bits
        return np.full(rows, -LIMIT), np.full(rows, LIMIT)
    left = given.left.astype(np.int64)
    ends = left * int(given.right.min()), left * int(given.right.max())
    least = np.minimum(np.minimum(*ends), 0).sum(1) + np.minimum(given.bias[:, 0], 0)
    return least, np.maximum(np.maximum(*ends), 0).sum(1) + np.maximum(given.bias[:, 0], 0)


def _part(given: Operands, rows: Array, columns: Array) -> Operands:
    """The sums of some rows and columns."""
    whole = len(columns) == given.shape[1]
    right = given.right if whole else given.right[:, columns]
    left, right = given.left[rows], np.ascontiguousarray(right)
    return Operands(left, right, given.bias[rows], given.factors, given.largest[rows], given.bound)


def _gathered(given: Operands, rows: Array, columns: Array) -> Operands:
    """Sums that lie here and there, as one row of ones times their products."""
    terms = given.left[rows].T.astype(np.int64) * given.right[:, columns]
    ones = np.ones((1, given.depth), np.int64)
    bias, one = given.bias[rows].T, np.ones(1, np.int64)
    return Operands(ones, np.ascontiguousarray(terms), bias, (1, given.term), one, given.bound)
