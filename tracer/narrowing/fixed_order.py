"""Matrix products and factors that have the same bits on every processor, on any threads.

BLAS adds products in an order of its own, which depends on the processor. Here its sums are exact,
so that the order does not matter: factors are rounded to multiples of a power of two, as fine as
sums of their products stay below 2^53 (Ozaki et al., Numerical Algorithms 59, 2012). What is left
of the factors is multiplied likewise, and added. All else is arithmetic of single numbers, in a
fixed order, which IEEE 754 defines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
        bits = _integer_bits(own)
        if bits is not None and bits <= room - _ENOUGH:
            rounded, unit = _rounded(other, room - bits, -2 if other is right else -1)
            pair = (own, rounded) if own is left else (rounded, own)
            return np.asarray(np.matmul(*pair) * unit)
    return _of_parts(left, right, room // 2)


def coarse(left: Array, right: Array) -> FloatArray:
    """Returns the product (M, P) of factors that are rounded to half of the bits of a sum.

    Half are 24 for sums of 32 products, as many as float32 has.
    """
    bits = (_EXACT - int(left.shape[-1]).bit_length()) // 2
    (a, unit), (b, other) = _rounded(left, bits, -1), _rounded(right, bits, -2)
    return np.asarray(a @ b * unit * other)


def _of_parts(left: FloatArray, right: FloatArray, bits: int) -> FloatArray:
    """Multiplies two parts of each factor, of so many bits; the product of the last is left out."""
    (a, unit), (b, other) = _rounded(left, bits, -1), _rounded(right, bits, -2)
    a_rest, a_unit = _rounded(left - a * unit, bits, -1)
    b_rest, b_unit = _rounded(right - b * other, bits, -2)
    result = np.matmul(a_rest, b) * a_unit * other
    result += np.matmul(a, b_rest) * unit * b_unit
    result += np.matmul(a, b) * unit * other
    return np.asarray(result)


def _integer_bits(values: FloatArray) -> int | None:
    """Returns the bits of the largest of integers; None for other numbers."""
    most = float(np.abs(values).max(initial=0))
    if most >= 1 << (_EXACT - _ENOUGH) or not (np.rint(values) == values).all():
        return None
    return int(most).bit_length()


def _rounded(values: FloatArray, bits: int, axis: int) -> tuple[FloatArray, FloatArray]:
    """Returns integers of at most `bits` bits, and their units along an axis: powers of two."""
    most = np.abs(values).max(axis, keepdims=True, initial=0)
    _, exponents = np.frexp(most)
    exponents = np.where(most > 0, np.maximum(exponents - bits, -1000), 0)
    integers = np.rint(np.ldexp(values, -exponents))
    return integers, np.ldexp(1.0, exponents)


def _all_finite(*arrays: Array) -> bool:
    return all(bool(np.isfinite(each).all()) for each in arrays)


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
    if min(a.ndim, b.ndim) < 2 or a.dtype.kind != "f" or not _all_finite(a, b):
        return np.asarray(np.matmul(a, b))
    rows, depth = a.shape[-2:]
    if a.ndim == b.ndim == 2 and compiled.takes_product(a.dtype, rows, depth, b.shape[-1]):
        out = np.empty((1, rows, b.shape[-1]), np.float32)
        compiled.matmul(a[None], b[None], out)
        return np.asarray(out[0])
    return np.asarray(product(a, b), np.result_type(a, b))
