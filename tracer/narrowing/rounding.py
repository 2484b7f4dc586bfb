"""Rounds weights to integers whose sums fit an accumulator for any input.

The rows of a matrix are rounded column by column. The error of a column is made up for in the
columns that follow, as the inputs are correlated: GPTQ (arXiv 2210.17323). Each integer is limited
to what the accumulator has left after the columns before it, and weights shrink at first, so that
something is left for the last ones: AXE (arXiv 2409.17092). Registers of tiles have limits each.

Its matrix products and factors have the same bits on every processor, on any threads. BLAS adds
products in an order of its own, which depends on the processor. Here compiled code adds them one
after the other, each product and its addition rounded once; where sums are exact, their order does
not matter. All else is arithmetic of single numbers, in a fixed order, which IEEE 754 defines.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import compiled, parallel, products, tile_tasks
from tracer.interpreter.numeric.tensors import is_half
from tracer.support.types import Array, FloatArray

_BLOCK = 96
"""Columns of a block of a factorisation."""


def product(left: Array, right: Array) -> FloatArray:
    """Returns the product, float64, of (stacks of) matrices (..., M, K) and (..., K, P)."""
    (rows, depth), wide = left.shape[-2:], right.shape[-1]
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    out = np.zeros((*stack, rows, wide))
    if out.size and depth:
        pair = [
            np.broadcast_to(np.asarray(each, np.float64), (*stack, *each.shape[-2:]))
            for each in (left, right)
        ]
        compiled.matmul(*[each.reshape(-1, *each.shape[-2:]) for each in (*pair, out)])
    return out


def gram(integers: FloatArray) -> FloatArray:
    """Returns the products (K, K) of the columns of integers (count, K), exactly.

    It adds as many rows at a time as float32 holds the sums of.
    """
    height = (1 << 24) // max(int(np.abs(integers).max(initial=1)) ** 2, 1)
    if height < _ROWS:
        return product(integers.T, integers)
    single, size = integers.astype(np.float32), integers.shape[1]
    result = np.empty((size, size))

    def fill(rows: slice) -> None:
        sums = np.zeros((rows.stop - rows.start, rows.stop))
        for part in parallel.pieces(len(single), height):
            sums += single[part, rows].T @ single[part, : rows.stop]
        result[rows, : rows.stop] = sums
        result[: rows.start, rows] = sums[:, : rows.start].T

    _share(size, fill)
    return result


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


def cholesky(matrix: FloatArray) -> FloatArray:
    """Returns the lower factor (K, K) of a positive definite matrix.

    Raises numpy.linalg.LinAlgError for another matrix.
    """
    size = len(matrix)
    upper = np.zeros((size, size))  # its rows are contiguous
    for block in parallel.pieces(size, _BLOCK):
        above, behind = slice(block.start), slice(block.start, size)
        rows = matrix[block, behind] - _product_with_part(
            upper[above, block].T, upper, above, behind
        )
        own = rows[:, : len(rows)].copy()
        for row in range(len(own)):
            if not own[row, row] > 0:
                raise np.linalg.LinAlgError("the matrix is not positive definite")
            own[row] /= np.sqrt(own[row, row])
            own[row + 1 :] -= own[row, row + 1 :, None] * own[row]
            own[row + 1 :, row] = 0
        upper[block, block] = own
        upper[block, block.stop :] = product(_inverse_of_block(own.T), rows[:, len(own) :])
    return upper.T


def inverse(lower: FloatArray) -> FloatArray:
    """Returns the inverse (K, K) of a lower triangular matrix."""
    result = np.zeros((len(lower), len(lower)))
    for block in parallel.pieces(len(lower), _BLOCK):
        own, before = _inverse_of_block(lower[block, block]), lower[block, : block.start].copy()
        for part in parallel.pieces(block.start, _ROWS):  # above each there is nothing but 0
            behind = slice(part.start, block.start)
            rows = _product_with_part(before[:, behind], result, behind, part)
            result[block, part] = product(-own, rows)
        result[block, block] = own
    return result


def _inverse_of_block(lower: FloatArray) -> FloatArray:
    result = np.eye(len(lower))
    for row in range(len(lower)):
        result[row] /= lower[row, row]
        result[row + 1 :] -= lower[row + 1 :, row, None] * result[row]
    return result


def _product_with_part(
    left: FloatArray, whole: FloatArray, rows: slice, columns: slice
) -> FloatArray:
    """Returns the product of a matrix and some rows and columns of a contiguous one."""
    size, wide = whole.shape[1], columns.stop - columns.start
    out = np.zeros((len(left), wide))
    if out.size and left.shape[1]:
        offsets = np.arange(rows.start or 0, rows.stop) * size + columns.start
        places = tile_tasks.Columns(
            whole.reshape(-1), offsets, (1, 1, wide), (0, 0, 1), (0, wide, 1)
        )
        compiled.multiply(left[None], np.zeros((1, len(left))), places, out)
    return out


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
_ROUNDED_COLUMNS = 128
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
        half = product(self.factor, products[:, self.order].T).T
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
    behind = [np.ascontiguousarray(factor[each, each.stop :].T) for each in blocks]
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
            left[block.stop :] -= product(shares, errors)
        result[rows, inputs.order] = integers.T

    parts = parallel.pieces(len(weights), max(_ROUNDED_NUMBERS // depth, _LEAST_ROWS))
    parallel.run_blocks(len(parts), lambda number: fill(parts[number]))
    return result


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
