"""Sums term after term in numpy's own types, and windows gathered one by one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np


def summed(
    weights: np.ndarray, columns: np.ndarray, start: np.ndarray | None, dtype: Any
) -> np.ndarray:
    """`weights` (M, K) times `columns` (K, P): each product and each sum is rounded to `dtype`."""
    total = np.zeros((len(weights), columns.shape[1]), dtype)
    if start is not None:
        total += start.astype(dtype)[:, None]
    for k in range(weights.shape[1]):
        # exact in float64 for factors of 24 bits; then rounded once
        product = weights[:, k, None].astype(np.float64) * columns[k].astype(np.float64)
        total = (total + product.astype(dtype)).astype(dtype)
    return total


def convolved(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None,
    dtype: Any,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int,
) -> np.ndarray:
    """The convolution, its terms in the order channel, then kernel position."""
    rank = x.ndim - 2
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    x = np.pad(x, around)
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    size = [(n - e) // s + 1 for n, e, s in zip(x.shape[2:], spans, strides, strict=True)]
    maps, deep = len(w) // group, w.shape[1]
    out = np.empty((len(x), len(w), *size), dtype)
    for image, place in itertools.product(range(len(x)), np.ndindex(*size)):
        corner = [p * s for p, s in zip(place, strides, strict=True)]
        reach = tuple(slice(c, c + e, d) for c, e, d in zip(corner, spans, dilations, strict=True))
        for number in range(group):
            rows = slice(number * maps, (number + 1) * maps)
            patch = x[image, number * deep : (number + 1) * deep][(slice(None), *reach)]
            start = None if bias is None else bias[rows]
            sums = summed(w[rows].reshape(maps, -1), patch.reshape(-1, 1), start, dtype)
            out[(image, rows, *place)] = sums[:, 0]
    return out


def multiplied(a: np.ndarray, b: np.ndarray, dtype: Any) -> np.ndarray:
    """numpy's matmul of two arrays of at least two axes."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    lefts = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    rights = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    out = np.empty((*batch, a.shape[-2], b.shape[-1]), dtype)
    for index in np.ndindex(*batch):
        out[index] = summed(lefts[index], rights[index], None, dtype)
    return out
