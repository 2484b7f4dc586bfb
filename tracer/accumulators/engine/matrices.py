"""The matrices of a block of dot products: checks them, and bounds the sums they can have."""

from dataclasses import dataclass

import numpy as np

from tracer.accumulators.spec.orders import Terms
from tracer.errors import ModelError
from tracer.support.types import Array

_DTYPES = tuple(map(np.dtype, ("int8", "uint8", "int16", "int32", "int64")))

LIMIT = 1 << 62
"""Sums of magnitudes stay below it, so that no step leaves 64 bits."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """`left` (M, K) and `right` (K, P), as kernels read them; `bias`, int64, broadcasts to (M, P).

    `factors` are the largest magnitudes of the two matrices. `least` and `most` (M), int64, bound
    every partial sum of a row, whatever the order of its products and the bias; no partial sum has
    a magnitude above `bound`.
    """

    left: Array
    right: Array
    bias: Array
    factors: tuple[int, int]
    least: Array
    most: Array
    bound: int

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the sums: (M, P)."""
        return self.left.shape[0], self.right.shape[1]

    @property
    def depth(self) -> int:
        """K, the number of terms of a sum."""
        return self.left.shape[1]

    @property
    def largest_term(self) -> int:
        """A magnitude that no product exceeds."""
        return self.factors[0] * self.factors[1]


def checked(left: Array, right: Array, bias: Array | None, terms: Terms) -> Matrices:
    """Returns matrices that fit each other and 64 bits. Raises ModelError for others."""
    _check(left, right, bias, terms)
    rows, (low, high) = len(left), extent(right)
    low, high = min(low, 0), max(high, 0)
    offset = np.zeros(rows, np.int64) if bias is None else bias.astype(np.int64)
    largest_bias = 0 if bias is None else max(map(abs, extent(bias)))
    factors = max(map(abs, extent(left))), max(-low, high)
    matrices = _readable(left), _readable(right)
    up, down = _sizes(matrices[0], factors[0])
    if left.shape[1] * factors[0] * factors[1] + largest_bias >= LIMIT:
        bound = _exact_bound(left, right, offset)
        if bound >= LIMIT:
            raise ModelError(
                f"sums of {left.shape[1]} products of up to {factors[0]} times {factors[1]}",
                "The sum of the magnitudes of products and bias must be below 2^62.",
            )
        least, most = np.full(rows, -bound), np.full(rows, bound)
    else:
        most = up * high - down * low + np.maximum(offset, 0)
        least = up * low - down * high + np.minimum(offset, 0)
        bound = max(int(most.max(initial=0)), -int(least.min(initial=0)))
    return Matrices(*matrices, offset[:, None], factors, least, most, bound)


def within(left: Array, right: Array, left_range: tuple[int, int]) -> Matrices:
    """Matrices that fit each other, bounded by the range of the left one, without a bias."""
    rows, factors = len(left), tuple(max(map(abs, ends)) for ends in (left_range, extent(right)))
    bound = left.shape[1] * factors[0] * factors[1]
    bounds = np.full(rows, -bound), np.full(rows, bound)
    zeros = np.zeros((rows, 1), np.int64)
    return Matrices(_readable(left), right, zeros, (factors[0], factors[1]), *bounds, bound)


def extent(array: Array) -> tuple[int, int]:
    """The lowest and the highest number; 0 for an empty array."""
    return (int(array.min()), int(array.max())) if array.size else (0, 0)


def _check(left: Array, right: Array, bias: Array | None, terms: Terms) -> None:
    for name, array in (("left", left), ("right", right), ("bias", bias)):
        if array is not None and array.dtype.kind not in "iu":
            raise ModelError(
                f"the {name} operand of exact sums has type {array.dtype}", "It must be integers."
            )
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ModelError(
            f"matrices of {list(left.shape)} and {list(right.shape)} cannot be multiplied"
        )
    if terms.count != left.shape[1]:
        raise ModelError(
            f"{terms.channels} channels, windows of {terms.window}: not {left.shape[1]} terms"
        )
    if bias is not None and bias.shape != (left.shape[0],):
        raise ModelError(f"a bias of shape {list(bias.shape)} for {left.shape[0]} rows")


def _sizes(rows: Array, largest: int) -> tuple[Array, Array]:
    """For each row, the magnitudes of positive and of negative numbers added up, modulo 2^64."""
    if rows.shape[1] * largest <= 1 << 24:  # exact in float32, whose sums are the fastest
        floats, ones = rows.astype(np.float32), np.ones(rows.shape[1], np.float32)
        total, size = ((each @ ones).astype(np.int64) for each in (floats, np.abs(floats)))
    else:
        wide = rows.astype(np.int64)
        total, size = wide.sum(1), np.abs(wide).sum(1)
    return (size + total) >> 1, (size - total) >> 1


def _readable(array: Array) -> Array:
    """The array, contiguous, in a type that the kernels read."""
    return np.ascontiguousarray(array, None if array.dtype in _DTYPES else np.int64)


def _exact_bound(left: Array, right: Array, bias: Array) -> int:
    """The largest sum of magnitudes of products and bias, for sums near 64 bits."""
    sizes, other_sizes = (np.abs(side.astype(np.float64)) for side in (left, right))
    sums = sizes @ other_sizes + np.abs(bias.astype(np.float64))[:, None]
    return int(sums.max(initial=0) * (1 + 1e-9))  # more than float64 can have rounded off
