"""Rounds weights to integers whose sums fit an accumulator for any input.

The rows of a matrix are rounded column by column. The error of a column is made up for in the
columns that follow, as the inputs are correlated: GPTQ (arXiv 2210.17323). Each integer is limited
to what the accumulator has left after the columns before it, and weights shrink at first, so that
something is left for the last ones: AXE (arXiv 2409.17092). Registers of tiles have limits each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.narrowing import fixed_order
from tracer.narrowing.fixed_order import coarse, product
from tracer.support.types import Array, FloatArray

_BLOCK = 32
"""Columns between two updates of the columns behind them: few large products are fast."""
_DAMPING = 0.01
"""Share of the mean of the diagonal that is added to it: inputs may be dependent, or always 0."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the sums of each row may reach, for inputs from `low` <= 0 to `high` >= 0.

    A register takes the columns from one of `starts` to the next. `above` and `below` (rows,
    registers) are the largest sum and minus the smallest sum that it may reach without the bias.
    Weights are integers from -`most` to `most`.
    """

    low: int
    high: int
    above: FloatArray
    below: FloatArray
    most: int
    starts: tuple[int, ...] = (0,)

    @property
    def span(self) -> int:
        """The width of the range of inputs, at least 1."""
        return max(self.high - self.low, 1)

    def reached(self, weights: Array) -> tuple[Array, Array]:
        """Returns the largest and minus the smallest sums (rows, registers) of integers."""
        positive, negative = (
            np.add.reduceat(np.maximum(each, 0), self.starts, axis=1)
            for each in (weights, -weights)
        )
        top = self.high * positive - self.low * negative
        return top, self.high * negative - self.low * positive

    def held_by(self, weights: Array) -> bool:
        """Whether the sums of all rows of integers (rows, K) stay within the limits."""
        top, bottom = self.reached(weights)
        return bool((top <= self.above).all() and (bottom <= self.below).all())


@dataclass(frozen=True, slots=True)
class Correlations:
    """How K inputs are correlated: `factor` is upper triangular, the columns in `order`.

    The damped second moments in that order have the inverse factor^T factor.
    """

    order: Array
    factor: FloatArray

    @classmethod
    def of(cls, second_moments: FloatArray) -> Correlations:
        """Returns the correlations of inputs with these mean products (K, K), the largest first."""
        order = np.argsort(-np.diag(second_moments), kind="stable")
        reverse = order[::-1]
        moments = damped(second_moments)[np.ix_(reverse, reverse)]
        inverse = fixed_order.inverse(fixed_order.cholesky(moments))
        return cls(order, np.ascontiguousarray(inverse[::-1, ::-1]))

    def solve(self, products: FloatArray) -> FloatArray:
        """Returns `products` (rows, K) times the inverse of the second moments."""
        result = np.empty_like(products)
        half = product(products[:, self.order], self.factor.T)
        result[:, self.order] = product(half, self.factor)
        return result


def damped(second_moments: FloatArray) -> FloatArray:
    """Returns the second moments (K, K) of inputs with a share of their mean on the diagonal."""
    result: FloatArray = second_moments + share(second_moments) * np.eye(len(second_moments))
    return result


def share(second_moments: FloatArray) -> float:
    """Returns what is added to the diagonal of second moments."""
    mean = float(np.diag(second_moments).sum()) / max(len(second_moments), 1)
    return _DAMPING * mean if mean > 0 else 1.0


def rounded(weights: FloatArray, inputs: Correlations, limits: Limits) -> FloatArray:
    """Returns integers (rows, K) within `limits` that multiply inputs much as `weights` do."""
    order, factor = inputs.order, inputs.factor
    left = np.ascontiguousarray(weights.T[order])
    integers = np.zeros_like(left)
    room = _Room(limits, weights)
    registers = np.searchsorted(limits.starts, order, side="right") - 1
    for start in range(0, len(left), _BLOCK):
        block = slice(start, start + _BLOCK)
        errors = _round_block(
            left[block], factor[block, block], integers[block], room, registers[block]
        )
        left[start + _BLOCK :] -= coarse(factor[block, start + _BLOCK :].T, errors)
    result = np.empty_like(weights)
    result[:, order] = integers.T
    return result


def _round_block(
    left: FloatArray, factor: FloatArray, integers: FloatArray, room: _Room, registers: Array
) -> FloatArray:
    """Rounds some columns of weights, rows of `left`; returns their errors for those behind."""
    errors = np.empty_like(left)
    for column in range(len(left)):
        integers[column] = room.taken(left[column], registers[column])
        errors[column] = (left[column] - integers[column]) / factor[column, column]
        left[column + 1 :] -= factor[column, column + 1 :, None] * errors[column]
    return errors


class _Room:
    """What the integers of the next columns may add to the registers of each row."""

    def __init__(self, limits: Limits, weights: FloatArray) -> None:
        self._limits = limits
        self._above, self._below = limits.above.T.copy(), limits.below.T.copy()
        budget = np.minimum(limits.above, limits.below) / limits.span
        parts = np.split(weights, limits.starts[1:], axis=1)
        self._shrink = [
            np.stack([_threshold(sign * each, budget[:, n]) for n, each in enumerate(parts)])
            for sign in (1, -1)
        ]

    def taken(self, weights: FloatArray, register: int) -> FloatArray:
        """Returns the integers (rows,) for a column of a register, and takes their room."""
        low, high = self._limits.low, self._limits.high
        above, below = self._above[register], self._below[register]
        positive, negative = (shrink[register] for shrink in self._shrink)
        shrunk = np.maximum(weights - positive, 0) - np.maximum(-weights - negative, 0)
        most = np.minimum(_times(above, high), _times(below, -low))
        least = np.minimum(_times(above, -low), _times(below, high))
        limit = self._limits.most
        integers: FloatArray = np.clip(
            np.rint(shrunk), -np.minimum(least, limit), np.minimum(most, limit)
        )
        above -= np.maximum(integers * high, integers * low)
        below -= np.maximum(-integers * low, -integers * high)
        return integers


def _times(room: FloatArray, value: int) -> FloatArray:
    """Returns how often `value` >= 0 fits into `room`."""
    if value == 0:
        return np.full(room.shape, np.inf)
    result: FloatArray = np.maximum(np.floor(room / value), 0)
    return result


def _threshold(weights: FloatArray, budget: FloatArray) -> FloatArray:
    """Returns by how much positive weights (rows, K) shrink so that they sum to `budget` (rows,).

    It is the projection onto the simplex (Duchi et al., ICML 2008), and 0 where they fit already.
    """
    falling = -np.sort(-np.maximum(weights, 0), axis=1)
    sums = np.cumsum(falling, axis=1)
    excess = (sums - budget[:, None]) / np.arange(1, falling.shape[1] + 1)
    last = np.maximum((falling > excess).sum(1) - 1, 0)
    result: FloatArray = np.maximum(excess[np.arange(len(excess)), last], 0)
    return result
