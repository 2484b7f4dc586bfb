"""Max, average and Lp pooling, their global forms, MaxUnpool, and MaxpoolWithMask."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import compiled, parallel, tensors
from tracer.interpreter.numeric.tensors import flat
from tracer.interpreter.numeric.windows import Window, padded, patches, window
from tracer.interpreter.operators import MICROSOFT, Arguments, Ints, NodeContext, operator
from tracer.support.types import Array

_TILE = 1 << 15
"""Output elements of a block: with its input it stays in the second-level cache."""


@operator("MaxPool")
def max_pool(
    X: Array,
    *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
    kernel_shape: Sequence[int], pads: Ints = None, storage_order: int = 0, strides: Ints = None,
    ctx: NodeContext,
) -> tuple[Array, ...]:  # fmt: skip
    """The largest value of each window, and its flat index if that output has a name."""
    slid = window(X.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    is_integer = X.dtype.kind in "iu"
    lowest = np.iinfo(X.dtype).min if is_integer else X.dtype.type(-np.inf)
    if X.ndim <= 4 and compiled.takes_elements(X):
        maxima = compiled.max_pool(X, slid)
    else:
        maxima = _slide(X, slid, lowest, np.maximum)
    if len(ctx.outputs_named) < 2 or not ctx.outputs_named[1]:
        return (maxima,)
    return maxima, _indices(X, slid, lowest, storage_order)


@operator("AveragePool")
def average_pool(
    X: Array,
    *, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Ints = None, kernel_shape: Sequence[int], pads: Ints = None, strides: Ints = None,
) -> Array:  # fmt: skip
    """The mean of each window; padding counts as zeros only with `count_include_pad`."""
    slid = window(X.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return average(X, slid, counts(X.shape[2:], slid, bool(count_include_pad)))


def average(x: Array, slid: Window, sizes: Array) -> Array:
    """Returns the sum of each window divided by its size."""
    means = _slide(x, slid, 0, np.add)
    means /= sizes.astype(means.dtype)
    return means


@operator("LpPool")
def lp_pool(
    X: Array,
    *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
    kernel_shape: Sequence[int], p: float = 2, pads: Ints = None, strides: Ints = None,
) -> Array:  # fmt: skip
    """The p-norm of each window."""
    slid = window(X.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    powers = np.absolute(X) ** np.array(p, X.dtype)
    sums = _slide(powers, slid, 0, np.add)
    return sums ** np.array(1 / p, X.dtype)


operator("GlobalAveragePool")(lambda X: X.mean(axis=_spatial(X), keepdims=True))
operator("GlobalMaxPool")(lambda X: X.max(axis=_spatial(X), keepdims=True))


@operator("GlobalLpPool")
def global_lp_pool(X: Array, *, p: float = 2) -> Array:
    """The p-norm of each channel."""
    powers = np.absolute(X) ** np.array(p, X.dtype)
    return powers.sum(axis=_spatial(X), keepdims=True) ** np.array(1 / p, X.dtype)


@operator("MaxUnpool", since=9)
def max_unpool(
    X: Array,
    I: Array,  # noqa: E741
    output_shape: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Zeros, except for the values of X at the positions I that MaxPool took them from."""
    rank = X.ndim - 2
    steps, around = strides or [1] * rank, pads or [0] * (2 * rank)
    size = [
        (n - 1) * s - before - after + k
        for n, s, k, before, after in zip(
            X.shape[2:], steps, kernel_shape, around[:rank], around[rank:], strict=True
        )
    ]
    shape = (*X.shape[:2], *size)
    limits.allow(shape, X.dtype)
    flat = np.zeros(int(np.prod(shape)), X.dtype)
    flat[I.reshape(-1)] = X.reshape(-1)
    output = flat.reshape(shape)
    if output_shape is None or tuple(output_shape) == shape:
        return output
    larger = tuple(int(n) for n in output_shape)
    limits.allow(larger, X.dtype)
    return np.pad(output, [(0, n - m) for n, m in zip(larger, shape, strict=True)])


def check_mask(given: Arguments) -> None:
    """Raises ModelError for a mask that is not one map of the size of the images."""
    X, M = given.X, given.M
    if X.ndim < 3 or M.ndim != X.ndim or M.shape != (1, 1, *X.shape[2:]):
        raise ModelError(
            f"the mask is {list(M.shape)}, not {[1, 1, *X.shape[2:]]}",
            "onnxruntime reads masks of several images or channels at wrong places.",
        )


@operator("MaxpoolWithMask", domain=MICROSOFT, check=check_mask)
def maxpool_with_mask(
    X: Array, M: Array,
    *, auto_pad: str = "NOTSET", kernel_shape: Sequence[int], pads: Ints = None,
    storage_order: int = 0, strides: Ints = None,
) -> Array:  # fmt: skip
    """The largest value of each window; each row of a window ends where the mask is 0.

    As in onnxruntime, the first element of an image is never masked, unless it has one axis.
    Where all is masked, the result is the least float.
    """
    slid = window(X.shape[2:], kernel_shape, strides, pads, None, auto_pad)
    lowest = np.finfo(X.dtype).min
    mask = M != 0
    if X.ndim > 3:
        mask = mask.copy()
        mask[(0,) * mask.ndim] = True
    last = X.ndim - 1  # of the axes of a window, which follow image and channel
    seen = np.logical_and.accumulate(patches(padded(mask, slid, fill=True), slid), axis=last)
    values = np.where(seen, patches(padded(X, slid, fill=lowest), slid), lowest)
    largest: Array = values.max(axis=tuple(range(2, X.ndim)))
    return largest


def _slide(x: Array, slid: Window, fill: Any, fold: np.ufunc) -> Array:
    """Folds the values at all kernel positions of each window into one."""
    out = tensors.empty_within_limits((*x.shape[:2], *slid.out), x.dtype)
    channels = parallel.pieces(x.shape[1], max(_TILE // slid.pixels, 1))
    work = [(image, part) for image in range(len(x)) for part in channels]

    def block(index: int) -> None:
        image, part = work[index]
        view = patches(padded(x[image : image + 1, part], slid, fill), slid)[0]
        target = out[image, part]
        for number, position in enumerate(slid.positions):
            plane = view[(slice(None), *position)]
            if number:
                fold(target, plane, out=target)
            else:
                np.copyto(target, plane)

    parallel.run_blocks(len(work), block)
    return out


def counts(size: Sequence[int], slid: Window, include_pad: bool) -> Array:
    """Returns how many values each window holds, optionally including padding."""
    axes = []
    for axis, n in enumerate(size):
        low = -slid.before[axis] if include_pad else 0
        high = n + slid.after[axis] if include_pad else n
        starts = np.arange(slid.out[axis]) * slid.strides[axis] - slid.before[axis]
        coordinates = starts[:, None] + np.arange(slid.kernel[axis]) * slid.dilations[axis]
        axes.append(((coordinates >= low) & (coordinates < high)).sum(axis=1))
    return reduce(np.multiply.outer, axes)


def _indices(x: Array, slid: Window, lowest: Any, storage_order: int) -> Array:
    """Returns the flat index in `x` of each window's first maximum; order 1 is column-major.

    Of NaN, it is a window's first element alone that is kept, as onnxruntime compares.
    """
    rank = len(slid.kernel)
    ones = np.ones((1, 1, *x.shape[2:]), bool)
    values, is_inside = (
        flat(
            np.moveaxis(patches(each, slid), range(2, 2 + rank), range(-rank, 0)),
            -rank,
            2 + 2 * rank,
        )
        for each in (padded(x, slid, lowest), padded(ones, slid, False))
    )
    best = (is_inside & (values == np.fmax.reduce(values, -1, keepdims=True))).argmax(-1)
    first = np.broadcast_to(is_inside.argmax(-1), best.shape)
    is_nan = np.isnan(np.take_along_axis(values, first[..., None], -1)[..., 0])
    best = np.where(is_nan, first, best)
    inside = np.unravel_index(best, slid.kernel)
    places = np.zeros(best.shape, np.int64)
    size = x.shape[2:]
    axes = range(rank) if storage_order == 0 else reversed(range(rank))
    for axis in axes:
        shape = [1] * (2 + rank)
        shape[2 + axis] = -1
        start = np.arange(slid.out[axis]).reshape(shape) * slid.strides[axis] - slid.before[axis]
        places = places * size[axis] + start + inside[axis] * slid.dilations[axis]
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * rank)
    return places + planes * int(np.prod(size))


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))
