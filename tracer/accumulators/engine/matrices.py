"""The operands of a block of dot products: checked, and how large their sums can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.orders import Terms
from tracer.errors import ModelError
from tracer.support.types import Array

_KINDS = tuple(map(np.dtype, ("int8", "uint8", "int16", "int32", "int64")))

LIMIT = 1 << 62
"""Sums of magnitudes stay below it, so that no step leaves 64 bits."""


@dataclass(frozen=True, slots=True)
class Operands:
    """`left` (M, K), `right` (K, P), as kernels read them; `bias`, int64, broadcasts to (M, P).

    `factors` are the largest magnitudes of each side, `largest` (M), int64, those of the rows;
    `right` lies in `span`, and 0 too.
    `least` and `most` (M), int64, are what no sum of a row goes below or above, whichever of its
    products and the bias are added in whatever order; `bound` is a magnitude that none exceeds.
    """

    left: Array
    right: Array
    bias: Array
    factors: tuple[int, int]
    span: tuple[int, int]
    largest: Array
    least: Array
    most: Array
    bound: int

    @property
    def shape(self) -> tuple[int, int]:
        """Of the sums."""
        return self.left.shape[0], self.right.shape[1]

    @property
    def depth(self) -> int:
        """Terms of a sum."""
        return self.left.shape[1]

    @property
    def term(self) -> int:
        """A magnitude that no product exceeds."""
        return self.factors[0] * self.factors[1]

    def terms_of(self, band: int) -> Array:
        """The same for each `band` of rows, int64."""
        return self.factors[1] * over_bands(self.largest, band, np.maximum)


def checked(left: Array, right: Array, bias: Array | None, terms: Terms) -> Operands:
    """Operands that fit each other and 64 bits. Raises ModelError."""
    for what, array in (("left", left), ("right", right), ("bias", bias)):
        if array is not None and array.dtype.kind not in "iu":
            raise ModelError(
                f"the {what} operand of exact sums has type {array.dtype}", "It must be integers."
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
    rows, span = len(left), extent(right)
    low, high = min(span[0], 0), max(span[1], 0)
    wide = np.zeros(rows, np.int64) if bias is None else bias.astype(np.int64)
    factors = max(abs(end) for end in extent(left)), max(-low, high)
    offset = _magnitude(bias)
    ready = _ready(left), _ready(right)
    up, down, largest = (np.empty(rows, np.int64) for _ in range(3))
    loaded("sequential_sums").sizes(ready[0], up, down, largest)
    if left.shape[1] * factors[0] * factors[1] + offset >= LIMIT:
        bound = _closer(left, right, wide)
        if bound >= LIMIT:
            raise ModelError(
                f"sums of {left.shape[1]} products of up to {factors[0]} times {factors[1]}",
                "The sum of the magnitudes of products and bias must be below 2^62.",
            )
        least, most = np.full(rows, -bound), np.full(rows, bound)
    else:
        most = up * high - down * low + np.maximum(wide, 0)
        least = up * low - down * high + np.minimum(wide, 0)
        bound = max(int(most.max(initial=0)), -int(least.min(initial=0)))
    return Operands(*ready, wide[:, None], factors, (low, high), largest, least, most, bound)


def over_bands(values: Array, band: int, choose: np.ufunc) -> Array:
    """What `choose` makes of the `values` of each `band` of rows, the last one perhaps shorter."""
    return choose.reduceat(values, np.arange(0, len(values), band))


def extent(array: Array) -> tuple[int, int]:
    """The lowest and the highest number; 0 where there are none."""
    return (int(array.min()), int(array.max())) if array.size else (0, 0)


def _ready(array: Array) -> Array:
    """In a type that the kernels read, contiguous."""
    return np.ascontiguousarray(array, None if array.dtype in _KINDS else np.int64)


def _magnitude(array: Array | None) -> int:
    return 0 if array is None else max(abs(end) for end in extent(array))


def _closer(left: Array, right: Array, bias: Array) -> int:
    """The largest sum of magnitudes of products and bias, for what is near 64 bits."""
    sums = _magnitudes(left) @ _magnitudes(right) + _magnitudes(bias)[:, None]
    return int(sums.max(initial=0) * (1 + 1e-9))  # more than float64 can have rounded off


def _magnitudes(array: Array) -> Array:
    return np.abs(array.astype(np.float64))
