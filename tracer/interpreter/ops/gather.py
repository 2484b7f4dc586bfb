"""Gather, GatherElements, GatherND, NonZero, Unique: selection by index."""

from typing import Any

import numpy as np

from tracer import limits
from tracer.interpreter.numeric.axes import flat, nonnegative_axis
from tracer.interpreter.ops.scatter import wrapped
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("Gather")
def gather(data: Array, indices: Array, *, axis: int = 0) -> Array:
    """Slices of `axis` at `indices`; the shape of `indices` replaces the axis."""
    at = nonnegative_axis(axis, data.ndim)
    limits.allow((*data.shape[:at], *indices.shape, *data.shape[at + 1 :]), data.dtype)
    return np.take(data, wrapped(indices, data.shape[at]), axis=at)


@operator("GatherElements", since=11)
def gather_elements(data: Array, indices: Array, *, axis: int = 0) -> Array:
    """The element at each index along `axis`."""
    limits.allow(indices.shape, data.dtype)
    index: list[Any] = list(np.indices(indices.shape, sparse=True))
    index[axis] = wrapped(indices, data.shape[axis])
    return data[tuple(index)]


@operator("GatherND", since=11)
def gather_nd(data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """The slices at the index tuples in the last axis, per batch entry."""
    batch = data.shape[:batch_dims]
    ready, depth = flat(data, 0, batch_dims), indices.shape[-1]
    tuples = flat(flat(indices, batch_dims, -1), 0, batch_dims)
    limits.allow((*indices.shape[:-1], *data.shape[batch_dims + depth :]), data.dtype)
    index = [wrapped(tuples[..., i], data.shape[batch_dims + i]) for i in range(depth)]
    slices = ready[(np.arange(len(ready))[:, None], *index)]
    return slices.reshape(
        (*batch, *indices.shape[batch_dims:-1], *data.shape[batch_dims + depth :])
    )


@operator("NonZero", since=9)
def non_zero(X: Array) -> Array:
    """The indices of nonzero elements, one column per element."""
    limits.allow((max(X.ndim, 1), int(np.count_nonzero(X))), np.int64)
    return np.array(np.nonzero(np.atleast_1d(X)), np.int64).reshape(max(X.ndim, 1), -1)


@operator("Unique", since=11, copies=8)
def unique(X: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:
    """The distinct values, their first indices, the inverse indices, and their counts."""
    values, first, inverse, counts = np.unique(
        X, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *(part.astype(np.int64) for part in (first, inverse, counts))
