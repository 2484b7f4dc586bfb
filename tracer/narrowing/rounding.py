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

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import compiled, parallel, products
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
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    result = np.zeros((*stack, left.shape[-2], right.shape[-1]))
    add_product(result, left, right)
    return result


def add_product(
    total: FloatArray, left: FloatArray, right: FloatArray, is_lower: bool = False
) -> None:
    """Adds the product of (stacks of) matrices (..., M, K) and (..., K, P) to `total` (..., M, P).

    Factors are rounded to two parts; the product of the last ones is left out. If only the lower
    triangle of the total counts, most of what is above it stays as it was.
    """
    bits = (_EXACT - int(left.shape[-1]).bit_length()) // 2
    (a, a_rest), (b, b_rest) = _parts(left, bits, -1), _parts(right, bits, -2)

    def add(rows: slice) -> None:
        columns = slice(rows.stop if is_lower else None)
        added = a_rest[..., rows, :] @ b[..., columns]
        added += a[..., rows, :] @ b_rest[..., columns]
        added += a[..., rows, :] @ b[..., columns]
        total[..., rows, columns] += added

    _share(total.shape[-2], add)


def gram(integers: FloatArray) -> FloatArray:
    """Returns the products (K, K) of the columns of integers (count, K), exactly.

    It adds as many rows at a time as float32 holds the sums of.
    """
    height = (1 << 24) // max(int(np.abs(integers).max(initial=1)) ** 2, 1)
    if height < _ROWS:
        return product(integers.T, integers)
    single, size = integers.astype(np.float32), integers.shape[1]
    result = np.zeros((size, size))

    def add(rows: slice) -> None:
        for part in parallel.pieces(len(single), height):
            result[rows, : rows.stop] += single[part, rows].T @ single[part, : rows.stop]

    _share(size, add)
    return np.asarray(np.tril(result) + np.tril(result, -1).T)


def integer_product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Returns the exact product of integers (M, K) and (K, P), whose sums stay below 2^53."""
    most = np.abs(left).max(initial=0) * np.abs(right).sum(0).max(initial=0)
    kind = np.float32 if most < 1 << 24 else np.float64
    a: Array = left.astype(kind)
    b: Array = right.astype(kind)
    result = np.empty((len(left), right.shape[1]))

    def fill(rows: slice) -> None:
        result[rows] = a[rows] @ b

    _share(len(left), fill)
    return result


_ROWS = 256
"""Rows of a product that a thread computes at a time: they stay in its cache."""


def _share(rows: int, work: Callable[[slice], None]) -> None:
    """Calls `work` for some rows at a time, from all threads."""
    parts = parallel.pieces(rows, _ROWS)
    parallel.run_blocks(len(parts), lambda number: work(parts[number]))


def _parts(values: FloatArray, bits: int, axis: int) -> tuple[FloatArray, FloatArray]:
    """Returns values rounded to `bits` bits along an axis, and what is left, rounded likewise."""
    integers, unit = _rounded(values, bits, axis)
    first = integers * unit
    integers, unit = _rounded(values - first, bits, axis)
    return first, integers * unit


def _rounded(values: FloatArray, bits: int, axis: int) -> tuple[FloatArray, FloatArray]:
    """Returns integers of at most `bits` bits, and their units along an axis: powers of two."""
    most = np.abs(values).max(axis, keepdims=True, initial=0)
    _, exponents = np.frexp(most)
    exponents = np.where(most > 0, np.maximum(exponents - bits, -1000), 0)
    integers = np.rint(values * np.ldexp(1.0, -exponents))
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
        add_product(left[stop:, stop:], -behind, behind.T, is_lower=True)
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
        add_product(result[stop:, :stop], -lower[stop:, start:stop], rows)
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


_KERNELS = "tracer.accumulators.kernels"
_ROUNDED_COLUMNS = 32
"""Columns between two updates of the columns behind them: few large products are fast."""
_ROUNDED_NUMBERS, _LEAST_ROWS = 1 << 18, 64
"""Weights that a thread rounds at a time, and rows: they stay in its cache."""
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

    def of_rows(self, rows: slice) -> "Limits":
        """Returns the limits of some rows."""
        return replace(self, above=self.above[rows], below=self.below[rows])

    def room(self, weights: FloatArray) -> tuple[FloatArray, FloatArray, tuple[int, int, int]]:
        """Returns what rounds weights (rows, K): see `room`, `shrink` and `ends` of the kernel."""
        budget = np.minimum(self.above, self.below) / self.span
        parts = np.split(weights, self.starts[1:], axis=1)
        shrink = [
            np.stack([_threshold(sign * each, budget[:, n]) for n, each in enumerate(parts)])
            for sign in (1, -1)
        ]
        room = np.stack([self.above.T, self.below.T]).astype(np.float64, "C")
        return room, np.stack(shrink), (self.low, self.high, self.most)


@dataclass(frozen=True, slots=True)
class Correlations:
    """How K inputs are correlated: `factor` is upper triangular, the columns in `order`.

    The damped second moments in that order have the inverse factor^T factor.
    """

    order: Array
    factor: FloatArray

    @classmethod
    def of(cls, second_moments: FloatArray) -> "Correlations":
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
    factor, depth = inputs.factor, weights.shape[1]
    registers = np.searchsorted(limits.starts, inputs.order, side="right") - 1
    blocks = parallel.pieces(depth, _ROUNDED_COLUMNS)
    behind = [halved(factor[each, each.stop :].T, each.stop - each.start, -1) for each in blocks]
    result = np.empty_like(weights)

    def fill(rows: slice) -> None:
        left = np.ascontiguousarray(weights[rows].T[inputs.order])
        room, shrink, ends = limits.of_rows(rows).room(weights[rows])
        integers = np.empty_like(left)
        for block, shares in zip(blocks, behind, strict=True):
            own = np.ascontiguousarray(factor[block, block])
            errors = np.empty_like(left[block])
            loaded("rounded_columns", _KERNELS).round_block(
                left[block], own, registers[block], room, shrink, ends, integers[block], errors
            )
            left[block.stop :] -= shares @ halved(errors, len(errors), -2)
        result[rows, inputs.order] = integers.T

    parts = parallel.pieces(len(weights), max(_ROUNDED_NUMBERS // depth, _LEAST_ROWS))
    parallel.run_blocks(len(parts), lambda number: fill(parts[number]))
    return result


def halved(values: FloatArray, depth: int, axis: int) -> FloatArray:
    """Returns values rounded along an axis, so that sums of `depth` products of two are exact.

    Each has half of the bits: 23 for sums of 32 products, as many as float32 has.
    """
    integers, unit = _rounded(values, (_EXACT - depth.bit_length()) // 2, axis)
    return integers * unit


def _threshold(weights: FloatArray, budget: FloatArray) -> FloatArray:
    """Returns by how much positive weights (rows, K) shrink so that they sum to `budget` (rows,).

    It is the projection onto the simplex (Duchi et al., ICML 2008), and 0 where they fit already.
    """
    result = np.zeros(len(weights))
    positive = np.maximum(weights, 0)
    (over,) = np.nonzero(positive.sum(1) > budget * (1 - 1e-9))
    falling = -np.sort(-positive[over], axis=1)
    sums = np.cumsum(falling, axis=1)
    excess = (sums - budget[over, None]) / np.arange(1, falling.shape[1] + 1)
    last = np.maximum((falling > excess).sum(1) - 1, 0)
    result[over] = np.maximum(excess[np.arange(len(excess)), last], 0)
    return result
