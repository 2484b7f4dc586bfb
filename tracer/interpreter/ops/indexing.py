"""Selection by index, and updates of a copy at indices: Gather, NonZero, Unique, Scatter."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.tensors import flat, nonnegative_axis
from tracer.interpreter.operators import operator
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


_FOLD: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@operator("Scatter", since=9, copies=1)
@operator("ScatterElements", since=11, copies=1)
def scatter_elements(
    data: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none"
) -> Array:
    """A copy of `data` with `updates` at `indices` along `axis`."""
    output = data.copy()
    index: list[Any] = list(np.indices(indices.shape, sparse=True))
    index[axis] = wrapped(indices, data.shape[axis])
    _put(output, tuple(index), updates, reduction)
    return output


@operator("ScatterND", since=11, copies=1)
def scatter_nd(data: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """A copy of `data` with slices of `updates` at the index tuples in the last axis."""
    output = data.copy()
    depth = indices.shape[-1]
    index = tuple(wrapped(indices[..., axis], data.shape[axis]) for axis in range(depth))
    _put(output, index, updates, reduction)
    return output


@operator("TensorScatter", since=24, copies=1)
def tensor_scatter(
    past_cache: Array, update: Array, write_indices: Array | None = None,
    *, axis: int = -2, mode: str = "linear",
) -> Array:  # fmt: skip
    """A copy of `past_cache` with `update` along `axis`, from a place of each batch entry on.

    Raises ModelError for an update beyond the end, unless `mode` is circular.
    """
    at = nonnegative_axis(axis, past_cache.ndim)
    rows, new = past_cache.shape[at], update.shape[at]
    shape = (*past_cache.shape[:at], new, *past_cache.shape[at + 1 :])
    if at == 0 or update.shape != shape or new > rows:
        raise ModelError(f"an update {list(update.shape)} along axis {axis} of {list(shape)}")
    starts = np.zeros(len(past_cache), np.int64) if write_indices is None else write_indices
    if starts.shape != past_cache.shape[:1]:
        raise ModelError(f"write_indices are {list(starts.shape)}, not [{len(past_cache)}]")
    if mode != "circular" and starts.size and not 0 <= starts.min() <= starts.max() <= rows - new:
        raise ModelError(f"write_indices are {starts.tolist()}, from 0 to {rows - new} are allowed")
    output = past_cache.copy()
    places = (starts[:, None] + np.arange(new)) % rows if rows else starts[:, None]
    moved = np.moveaxis(output, at, 1)
    moved[np.arange(len(moved))[:, None], places] = np.moveaxis(update, at, 1)
    return output


def wrapped(indices: Array, size: int) -> Array:
    """Returns indices counted from the start. Raises ModelError for indices out of range."""
    if indices.size and (indices.min() < -size or indices.max() >= size):
        raise ModelError(
            f"index {indices.min() if indices.min() < -size else indices.max()} is outside "
            f"an axis of {size}"
        )
    return np.where(indices < 0, indices + size, indices)


def _put(target: Array, index: Any, updates: Array, reduction: str) -> None:
    if reduction == "none":
        target[index] = updates
        return
    if reduction not in _FOLD:
        raise ModelError(f"reduction '{reduction}' is not one of none, {', '.join(_FOLD)}")
    if target.dtype.kind == "V":  # the ufuncs of ml_dtypes have no `at`
        wide = target.astype(np.float32)
        _FOLD[reduction].at(wide, index, updates.astype(np.float32))  # type: ignore[attr-defined]
        target[...] = wide.astype(target.dtype)
    else:
        _FOLD[reduction].at(target, index, updates)  # type: ignore[attr-defined]
