"""Rounds weights to integers whose sums fit an accumulator for any input.

The rows of a matrix are rounded column by column. The error of a column is made up for in the
columns that follow, as the inputs are correlated: GPTQ (arXiv 2210.17323). Each integer is limited
to what the accumulator has left after the columns before it, and weights shrink at first, so that
something is left for the last ones: AXE (arXiv 2409.17092). Registers of tiles have limits each.

Its matrix products and factors have the same bits on every processor, on any threads. BLAS adds
products in an order of its own, which depends on the processor. Here its sums are exact, so that
the order does not matter: factors are rounded to multiples of a power of two, as fine as sums of
their products stay below 2^53 (Ozaki et al., Numerical Algorithms 59, 2012). What is left of the
factors is multiplied likewise, and added. All else is arithmetic of single numbers, in a fixed
order, which IEEE 754 defines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tracer.interpreter.numeric import compiled, products
from tracer.interpreter.numeric.tensors import is_half
from tracer.support.types import Array, FloatArray

_EXACT = 53
"""Bits of the integers that float64 holds."""
_ENOUGH = 28
"""Bits of a factor that are enough without those that are left."""
_BLOCK = 48
"""Columns of a block of a factorisation."""


def product(left: Array, right: Array) -> FloatArray:
    """Returns the product, float64, of (stacks of) matrices (..., M, K) and (..., K, P).

    The entries of each left row and each right column are rounded to `_ENOUGH` bits, at least, of
    the largest, if the other matrix has small integers; to twice what is left otherwise.
    """
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    room = _EXACT - int(left.shape[-1]).bit_length()
    for own, other in ((left, right), (right, left)):
        most = float(np.abs(own).max(initial=0))
        if most >= 1 << (_EXACT - _ENOUGH) or not (np.rint(own) == own).all():
            continue
        small = int(most).bit_length()
        if small <= room - _ENOUGH:
            rounded, unit = _rounded(other, room - small, -2 if other is right else -1)
            pair = (own, rounded) if own is left else (rounded, own)
            return np.asarray(np.matmul(*pair) * unit)
    bits = room // 2  # of two parts of each factor; the product of the last is left out
    (a, unit), (b, other) = _rounded(left, bits, -1), _rounded(right, bits, -2)
    a_rest, a_unit = _rounded(left - a * unit, bits, -1)
    b_rest, b_unit = _rounded(right - b * other, bits, -2)
    result = np.matmul(a_rest, b) * a_unit * other
    result += np.matmul(a, b_rest) * unit * b_unit
    result += np.matmul(a, b) * unit * other
    return np.asarray(result)


def coarse(left: Array, right: Array) -> FloatArray:
    """Returns the product (M, P) of factors that are rounded to half of the bits of a sum.

    Half are 24 for sums of 32 products, as many as float32 has.
    """
    bits = (_EXACT - int(left.shape[-1]).bit_length()) // 2
    (a, unit), (b, other) = _rounded(left, bits, -1), _rounded(right, bits, -2)
    return np.asarray(a @ b * unit * other)


def _rounded(values: FloatArray, bits: int, axis: int) -> tuple[FloatArray, FloatArray]:
    """Returns integers of at most `bits` bits, and their units along an axis: powers of two."""
    most = np.abs(values).max(axis, keepdims=True, initial=0)
    _, exponents = np.frexp(most)
    exponents = np.where(most > 0, np.maximum(exponents - bits, -1000), 0)
    integers = np.rint(np.ldexp(values, -exponents))
    return integers, np.ldexp(1.0, exponents)


def cholesky(matrix: FloatArray) -> FloatArray:
    """Returns the lower factor (K, K) of a positive definite matrix.

    Raises numpy.linalg.LinAlgError for another matrix.
    """
    left, size = np.array(matrix, np.float64), len(matrix)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        panel = left[start:, start:stop].copy()
        for column in range(stop - start):
            if not panel[column, column] > 0:
                raise np.linalg.LinAlgError("the matrix is not positive definite")
            panel[column:, column] /= np.sqrt(panel[column, column])
            below = panel[column + 1 :, column]
            panel[column + 1 :, column + 1 :] -= below[:, None] * below[: stop - start - column - 1]
        left[start:, start:stop] = panel
        behind = panel[stop - start :]
        left[stop:, stop:] -= product(behind, behind.T)
    return np.tril(left)


def inverse(lower: FloatArray) -> FloatArray:
    """Returns the inverse (K, K) of a lower triangular matrix."""
    size = len(lower)
    result = np.eye(size)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        rows, block = result[start:stop, :stop].copy(), lower[start:stop, start:stop]
        for row in range(stop - start):
            rows[row] /= block[row, row]
            rows[row + 1 :] -= block[row + 1 :, row, None] * rows[row]
        result[start:stop, :stop] = rows
        result[stop:, :stop] -= product(lower[stop:, start:stop], rows)
    return result


@contextmanager
def interpreting() -> Iterator[None]:
    """Within, products of the interpreter's that BLAS would compute in this thread are these."""
    with products.replaced(_multiply):
        yield


def _multiply(a: Array, b: Array) -> Array:
    """Computes numpy's matmul of floats; compiled kernels add in a fixed order."""
    if is_half(a.dtype):
        return np.asarray(_multiply(a.astype(np.float32), b.astype(np.float32)), a.dtype)
    if (
        min(a.ndim, b.ndim) < 2
        or a.dtype.kind != "f"
        or not all(np.isfinite(each).all() for each in (a, b))
    ):
        return np.asarray(np.matmul(a, b))
    rows, depth = a.shape[-2:]
    if a.ndim == b.ndim == 2 and compiled.takes_product(a.dtype, rows, depth, b.shape[-1]):
        out = np.empty((1, rows, b.shape[-1]), np.float32)
        compiled.matmul(a[None], b[None], out)
        return np.asarray(out[0])
    return np.asarray(product(a, b), np.result_type(a, b))


_ROUNDED_COLUMNS = 32
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

    def extremes(self, weights: Array) -> tuple[Array, Array]:
        """Returns the largest and minus the smallest sums (rows, registers) of integers."""
        positive, negative = (
            np.add.reduceat(np.maximum(each, 0), self.starts, axis=1)
            for each in (weights, -weights)
        )
        top = self.high * positive - self.low * negative
        return top, self.high * negative - self.low * positive

    def held_by(self, weights: Array) -> bool:
        """Whether the sums of all rows of integers (rows, K) stay within the limits."""
        top, bottom = self.extremes(weights)
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
        factor = inverse(cholesky(moments))
        return cls(order, np.ascontiguousarray(factor[::-1, ::-1]))

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


def round_within(weights: FloatArray, inputs: Correlations, limits: Limits) -> FloatArray:
    """Returns integers (rows, K) within `limits` that multiply inputs much as `weights` do."""
    order, factor = inputs.order, inputs.factor
    left = np.ascontiguousarray(weights.T[order])
    integers = np.zeros_like(left)
    room = _Room(limits, weights)
    registers = np.searchsorted(limits.starts, order, side="right") - 1
    for start in range(0, len(left), _ROUNDED_COLUMNS):
        stop = min(start + _ROUNDED_COLUMNS, len(left))
        errors = np.empty_like(left[start:stop])
        for column in range(start, stop):
            integers[column] = room.round_column(left[column], registers[column])
            error = errors[column - start]
            error[:] = (left[column] - integers[column]) / factor[column, column]
            left[column + 1 : stop] -= factor[column, column + 1 : stop, None] * error
        left[stop:] -= coarse(factor[start:stop, stop:].T, errors)
    result = np.empty_like(weights)
    result[:, order] = integers.T
    return result


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

    def round_column(self, weights: FloatArray, register: int) -> FloatArray:
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
