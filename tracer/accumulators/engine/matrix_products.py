"""numpy's matmul with another product, in blocks on threads."""

import math
from typing import Any

import numpy as np

from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.convolution import Place, PlacedProduct
from tracer.support.types import Array

_BLOCK = 1 << 18
"""Elements of the left operand, or of the output, that are multiplied at a time."""
_FEWEST = 64
"""Rows of a block, even if they have more elements."""


def matmul(left: Array, right: Array, product: PlacedProduct, dtype: Any) -> Array:
    """Returns `left` (..., R, K) times `right` (..., K, N), which numpy broadcasts.

    `product` multiplies the transposed right matrix (N, K) with some rows of the left one as
    columns (K, P). They are numbered by matrix, then by row; there is one group. It is called from
    several threads.
    """
    rows = left[None] if left.ndim == 1 else left
    columns = right[:, None] if right.ndim == 1 else right
    if columns.ndim == 2:
        flat = rows.reshape(math.prod(rows.shape[:-1]), len(columns))
        out = _matrix(flat, columns, product, 0, dtype)
        out = out.reshape(*rows.shape[:-1], columns.shape[1])
    else:
        out = _stacked(rows, columns, product, dtype)
    out = out[..., 0, :] if left.ndim == 1 else out
    return out[..., 0] if right.ndim == 1 else out


def _stacked(left: Array, right: Array, product: PlacedProduct, dtype: Any) -> Array:
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    out = np.empty((*batch, left.shape[-2], right.shape[-1]), dtype)
    lefts = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    rights = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    indices = list(np.ndindex(*batch))

    def block(number: int) -> None:
        index = indices[number]
        first = number * left.shape[-2]
        out[index] = _matrix(lefts[index], rights[index], product, first, dtype)

    parallel.run_blocks(len(indices), block)
    return out


def _matrix(a: Array, b: Array, product: PlacedProduct, first: int, dtype: Any) -> Array:
    """`a` (R, K) times `b` (K, N) as (R, N): columns of `b` are the rows of the product.

    `first` is the number of the first row of `a` among all columns of the product.
    """
    weights = np.ascontiguousarray(b.T)
    out = np.empty((len(a), len(weights)), dtype)
    parts = parallel.pieces(len(a), max(_BLOCK // max(*weights.shape, 1), _FEWEST))

    def block(index: int) -> None:
        part = parts[index]
        rows = a[part]
        sums = np.empty((len(weights), len(rows)), dtype)
        product(weights, np.ascontiguousarray(rows.T), sums, Place(0, first + part.start))
        out[part] = sums.T

    parallel.run_blocks(len(parts), block)
    return out
