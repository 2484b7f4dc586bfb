"""Reductions over axes, ArgMax, ArgMin, CumSum, CumProd, TopK."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric.tensors import nonnegative_axes, widened
from tracer.interpreter.operators import Ints, operator
from tracer.support.types import Array

Axes = tuple[int, ...] | None
Fold = Callable[[Array, Axes], Array]
"""Reduces an array over axes and keeps them with size 1."""

_AXES_INPUT = {
    # version at which `axes` became an input
    "ReduceSum": 13
}


def _sum(x: Array, axes: Axes) -> Array:
    return np.sum(x, axis=axes, dtype=x.dtype, keepdims=True)


def _mean(x: Array, axes: Axes) -> Array:
    if x.dtype.kind in "iu":
        total = np.sum(x, axis=axes, dtype=np.float64, keepdims=True)
        return np.trunc(total * total.size / max(x.size, 1)).astype(x.dtype)
    total = np.sum(x, axis=axes, keepdims=True, dtype=_wide(x))
    return (total / max(x.size // max(total.size, 1), 1)).astype(x.dtype)  # 0 of nothing


def _extreme(ufunc: Any, pick: str) -> Fold:
    def fold(x: Array, axes: Axes) -> Array:
        if x.size:
            return ufunc.reduce(x, axis=axes, keepdims=True)
        if x.dtype.kind == "b":
            start: Any = pick == "max"
        elif x.dtype.kind in "iu":
            start = getattr(np.iinfo(x.dtype), pick)
        else:
            start = x.dtype.type(np.inf if pick == "max" else -np.inf)
        return ufunc.reduce(x, axis=axes, keepdims=True, initial=start)

    return fold


def _log_sum_exp(x: Array, axes: Axes) -> Array:
    wide = x.astype(_wide(x) if x.dtype.kind == "f" else np.float64)
    top = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(wide.dtype)
    return (np.log(np.sum(np.exp(wide - top), axis=axes, keepdims=True)) + top).astype(x.dtype)


def _in_float32(fold: Fold) -> Fold:
    """Folds half precision in float32: squares leave its range early."""
    return lambda x, axes: fold(widened(x), axes).astype(x.dtype)


_FOLDS: dict[str, Fold] = {
    "ReduceSum": _in_float32(_sum),
    "ReduceMean": _mean,
    "ReduceProd": _in_float32(lambda x, axes: np.prod(x, axis=axes, dtype=x.dtype, keepdims=True)),
    "ReduceMax": _extreme(np.maximum, "min"),
    "ReduceMin": _extreme(np.minimum, "max"),
    "ReduceL1": _in_float32(lambda x, axes: _sum(np.absolute(x), axes)),
    "ReduceL2": _in_float32(lambda x, axes: np.sqrt(_sum(np.square(x), axes)).astype(x.dtype)),
    "ReduceSumSquare": _in_float32(lambda x, axes: _sum(np.square(x), axes)),
    "ReduceLogSum": _in_float32(lambda x, axes: np.log(_sum(x, axes)).astype(x.dtype)),
    "ReduceLogSumExp": _log_sum_exp,
}


def reduction(fold: Fold) -> Callable[..., Array]:
    """Returns the operator with its axes as an input; no axes mean all or, optionally, none."""

    def function(
        data: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Array:
        if (axes is None or not axes.size) and noop_with_empty_axes:
            return fold(data[None], (0,))[0]  # single elements are folded, e.g. squared
        return _fold(fold, data, None if axes is None else axes.tolist(), keepdims)

    return function


def legacy_reduction(fold: Fold) -> Callable[..., Array]:
    """Returns the operator with its axes as an attribute."""

    def function(data: Array, *, axes: Ints = None, keepdims: int = 1) -> Array:
        return _fold(fold, data, axes, keepdims)

    return function


for _name, _function in _FOLDS.items():
    operator(_name)(legacy_reduction(_function))
    operator(_name, since=_AXES_INPUT.get(_name, 18))(reduction(_function))


def arg_extreme(fold: Any) -> Callable[..., Array]:
    """Returns the operator of the index of an extreme along `axis`; the first or last of equals.

    Of NaN, it is the first element alone that is kept, as onnxruntime compares.
    """

    def function(
        data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Array:
        if not data.size:  # numpy looks for an element even where there is no result
            indices = np.zeros([n for at, n in enumerate(data.shape) if at != axis % data.ndim])
            if indices.size:
                raise ModelError(f"axis {axis} of {list(data.shape)} has no element")
        else:
            is_extreme = data == fold.reduce(data, axis, keepdims=True)
            if select_last_index:
                indices = data.shape[axis] - 1 - np.flip(is_extreme, axis).argmax(axis)
            else:
                indices = is_extreme.argmax(axis)
            indices = np.where(np.isnan(np.take(data, 0, axis)), 0, indices)
        indices = np.asarray(indices, np.int64)
        return np.expand_dims(indices, axis) if keepdims else indices

    return function


def running(ufunc: Any, neutral: int) -> Callable[..., Array]:
    """Returns the operator of running totals, without the element itself if `exclusive`."""

    def function(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
        at = int(axis.reshape(-1)[0])
        rows = np.moveaxis(x, at, 0)
        rows = np.flip(rows, 0) if reverse else rows
        if exclusive:  # the neutral element is a term: 0 and -0 are 0
            rows = np.concatenate([np.full_like(rows[:1], neutral), rows[:-1]])
        totals = ufunc.accumulate(rows, axis=0, dtype=x.dtype)
        totals = np.flip(totals, 0) if reverse else totals
        return np.moveaxis(totals, 0, at)

    return function


operator("ArgMax")(arg_extreme(np.fmax))
operator("ArgMin")(arg_extreme(np.fmin))
operator("CumSum", since=11, copies=1)(running(np.add, 0))
operator("CumProd", since=26, copies=1)(running(np.multiply, 1))


@operator("TopK", since=10, copies=6)
def top_k(
    X: Array, K: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """The K largest or smallest values along `axis`, and their indices; ties: lowest first."""
    count = int(K.reshape(-1)[0])
    if not 0 <= count <= X.shape[axis]:
        raise ModelError(f"K is {count} on an axis of {X.shape[axis]}")
    if largest:  # a stable sort of the reversed array puts lower indices last among ties
        order = np.flip(np.argsort(np.flip(X, axis), axis=axis, kind="stable"), axis)
        order = X.shape[axis] - 1 - order
    else:
        order = np.argsort(X, axis=axis, kind="stable")
    indices = np.take(order, range(count), axis=axis).astype(np.int64)
    return np.take_along_axis(X, indices, axis), indices


# before opset 10, k is an attribute
operator("TopK", copies=6)(lambda X, *, axis=-1, k: top_k(X, np.array([k]), axis=axis))


def _fold(fold: Fold, data: Array, axes: Ints, keepdims: int) -> Array:
    dims = tuple(nonnegative_axes(axes or None, data.ndim))
    folded = np.asarray(fold(data, dims))
    return folded if keepdims else np.squeeze(folded, dims)


def _wide(x: Array) -> Any:
    return np.float32 if x.dtype.itemsize < 4 else x.dtype
