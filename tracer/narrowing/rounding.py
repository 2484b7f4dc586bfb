"""Rounds weights to integers whose sums fit an accumulator for any input.

The rows of a matrix are rounded column by column. The error of a column is made up for in the
columns that follow, as the inputs are correlated: GPTQ (arXiv 2210.17323). Each integer is limited
to what the accumulator has left after the columns before it, and weights shrink at first, so that
something is left for the last ones: AXE (arXiv 2409.17092).
"""

from dataclasses import dataclass

import numpy as np

from tracer.support.types import Array, FloatArray

_BLOCK = 128
"""Columns between two updates of the columns behind them: few large products are fast."""
_DAMPING = 0.01
"""Share of the mean of the diagonal that is added to it: inputs may be dependent, or always 0."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the sums of each row may reach, for inputs from `low` <= 0 to `high` >= 0.

    `above` and `below` (rows,) are the largest sum and minus the smallest sum that may be reached
    without the bias. Weights are integers from -`most` to `most`.
    """

    low: int
    high: int
    above: FloatArray
    below: FloatArray
    most: int

    @property
    def span(self) -> int:
        """The width of the range of inputs, at least 1."""
        return max(self.high - self.low, 1)

    def reached(self, weights: Array) -> tuple[Array, Array]:
        """Returns the largest sum and minus the smallest sum of each row of integers (rows, K)."""
        positive, negative = np.maximum(weights, 0).sum(1), np.maximum(-weights, 0).sum(1)
        top = self.high * positive - self.low * negative
        return top, self.high * negative - self.low * positive

    def held_by(self, weights: Array) -> bool:
        """Whether the sums of all rows of integers (rows, K) stay within the limits."""
        top, bottom = self.reached(weights)
        return bool((top <= self.above).all() and (bottom <= self.below).all())


def damped(second_moments: FloatArray) -> FloatArray:
    """Returns the second moments (K, K) of inputs with a share of their mean on the diagonal."""
    mean = float(np.trace(second_moments)) / max(len(second_moments), 1)
    share = _DAMPING * mean if mean > 0 else 1.0
    result: FloatArray = second_moments + share * np.eye(len(second_moments))
    return result


def rounded(weights: FloatArray, second_moments: FloatArray, limits: Limits) -> FloatArray:
    """Returns integers (rows, K) within `limits` that multiply inputs much as `weights` do.

    `second_moments` (K, K) are the mean products of pairs of inputs, and positive definite: see
    `damped`.
    """
    order = np.argsort(-np.diag(second_moments), kind="stable")
    ordered = second_moments[np.ix_(order, order)]
    factor = np.linalg.cholesky(np.linalg.inv(ordered)).T
    left = weights[:, order].copy()
    integers = np.zeros_like(left)
    room = _Room(limits, left)
    for start in range(0, left.shape[1], _BLOCK):
        block = slice(start, start + _BLOCK)
        errors = _round_block(left[:, block], factor[block, block], integers[:, block], room)
        left[:, start + _BLOCK :] -= errors @ factor[block, start + _BLOCK :]
    result = np.empty_like(integers)
    result[:, order] = integers
    return result


def _round_block(
    left: FloatArray, factor: FloatArray, integers: FloatArray, room: "_Room"
) -> FloatArray:
    """Rounds some columns of `left` into `integers`; returns their errors for those behind."""
    errors = np.empty_like(left)
    for column in range(left.shape[1]):
        integers[:, column] = room.taken(left[:, column])
        errors[:, column] = (left[:, column] - integers[:, column]) / factor[column, column]
        left[:, column + 1 :] -= np.outer(errors[:, column], factor[column, column + 1 :])
    return errors


class _Room:
    """What the integers of the next columns may add to the sums of each row."""

    def __init__(self, limits: Limits, weights: FloatArray) -> None:
        self._limits = limits
        self._above, self._below = limits.above.copy(), limits.below.copy()
        budget = np.minimum(self._above, self._below) / limits.span
        self._shrink = [_threshold(sign * weights, budget) for sign in (1, -1)]

    def taken(self, weights: FloatArray) -> FloatArray:
        """Returns the integers (rows,) for a column, and takes their room."""
        low, high = self._limits.low, self._limits.high
        positive, negative = self._shrink
        shrunk = np.maximum(weights - positive, 0) - np.maximum(-weights - negative, 0)
        most = np.minimum(_times(self._above, high), _times(self._below, -low))
        least = np.minimum(_times(self._above, -low), _times(self._below, high))
        limit = self._limits.most
        integers: FloatArray = np.clip(
            np.rint(shrunk), -np.minimum(least, limit), np.minimum(most, limit)
        )
        self._above -= np.maximum(integers * high, integers * low)
        self._below -= np.maximum(-integers * low, -integers * high)
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
