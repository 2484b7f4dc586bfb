"""Shape, Reshape, Squeeze, Transpose, Expand, Tile and other changes of shape."""

import math
from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.registry import operator
from tracer.interpreter.values import Value
from tracer.support.types import Array

_Ints = Sequence[int] | None


@operator("Identity")
def identity(input: Value) -> Value:
    """The input."""
    return input


@operator("Shape")
def shape(data: Array, *, start: int = 0, end: int | None = None) -> Array:
    """The shape, or its part from `start` to `end`."""
    return np.array(data.shape[slice(start, end)], np.int64)


@operator("Size")
def size(data: Array) -> Array:
    """The number of elements."""
    return np.array(data.size, np.int64)


@operator("Reshape", since=5)
def reshape(data: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """Reshapes; -1 is inferred, 0 copies the input's size unless `allowzero` is set."""
    sizes = shape.tolist()
    if not allowzero:
        sizes = [data.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    if min(sizes, default=0) < -1:  # numpy takes any negative number for -1
        raise ModelError(f"shape {sizes} has a size below -1")
    return data.reshape(sizes)


@operator("Reshape")
def reshape_1(data: Array, *, shape: _Ints = None, consumed_inputs: _Ints = None) -> Array:
    """Reshape before opset 5: the shape is an attribute."""
    return reshape(data, np.array(shape or [], np.int64))


@operator("Flatten")
def flatten(input: Array, *, axis: int = 1) -> Array:
    """A matrix with the axes before `axis` as rows and the others as columns."""
    at = axis + input.ndim if axis < 0 else axis
    rows, columns = math.prod(input.shape[:at]), math.prod(input.shape[at:])
    return input.reshape(rows, columns)


@operator("Squeeze", since=13)
def squeeze(data: Array, axes: Array | None = None) -> Array:
    """Removes `axes` (default: all axes of size 1)."""
    return np.squeeze(data, None if axes is None else tuple(axes.tolist()))


@operator("Squeeze")
def squeeze_1(data: Array, *, axes: _Ints = None) -> Array:
    """Squeeze before opset 13: the axes are an attribute."""
    return np.squeeze(data, None if axes is None else tuple(axes))


@operator("Unsqueeze", since=13)
def unsqueeze(data: Array, axes: Array) -> Array:
    """Inserts axes of size 1 at `axes` of the result."""
    return np.expand_dims(data, tuple(axes.reshape(-1).tolist()))


@operator("Unsqueeze")
def unsqueeze_1(data: Array, *, axes: Sequence[int]) -> Array:
    """Unsqueeze before opset 13: the axes are an attribute."""
    return np.expand_dims(data, tuple(axes))


@operator("Transpose")
def transpose(data: Array, *, perm: _Ints = None) -> Array:
    """A view with the axes in the order of `perm` (default: reversed)."""
    return data.transpose(perm)


@operator("Expand", since=8)
def expand(input: Array, shape: Array) -> Array:
    """A view broadcast to the common shape of `input` and `shape`."""
    target = np.broadcast_shapes(input.shape, tuple(int(n) for n in shape))
    limits.allow(target, input.dtype)
    return np.broadcast_to(input, target)


@operator("Tile", since=6)
def tile(input: Array, repeats: Array) -> Array:
    """Repeats the input along each axis `repeats` times."""
    if len(repeats) != input.ndim or (repeats < 0).any():
        raise ModelError(f"repeats {repeats.tolist()} do not fit {input.ndim} axes")
    limits.allow([n * int(r) for n, r in zip(input.shape, repeats, strict=True)], input.dtype)
    return np.tile(input, repeats)


@operator("Tile")
def tile_1(input: Array, tiles: Array, axis: Array) -> Array:
    """Tile before opset 6: repeats one axis."""
    repeats = np.ones(input.ndim, np.int64)
    repeats[int(axis.reshape(-1)[0])] = int(tiles.reshape(-1)[0])
    return tile(input, repeats)


@operator("DepthToSpace", copies=1)
def depth_to_space(input: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Moves channels into blocks of the image; in CRD the position in a block varies fastest."""
    n, c, h, w = input.shape
    if c % (blocksize * blocksize):
        raise ModelError(f"{c} channels are no multiple of {blocksize} squared")
    deep = c // (blocksize * blocksize)
    if mode == "DCR":
        split = input.reshape(n, blocksize, blocksize, deep, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = input.reshape(n, deep, blocksize, blocksize, h, w).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(n, deep, h * blocksize, w * blocksize)


@operator("SpaceToDepth", copies=1)
def space_to_depth(input: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Moves blocks of the image into channels; in CRD the position in a block varies fastest."""
    n, c, h, w = input.shape
    if h % blocksize or w % blocksize:
        raise ModelError(f"an image of {h} by {w} does not fall into blocks of {blocksize}")
    split = input.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return split.transpose(order).reshape(
        n, c * blocksize * blocksize, h // blocksize, w // blocksize
    )


@operator("Trilu", since=14, copies=1)
def trilu(input: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    """The upper or lower triangle of matrices from diagonal `k`; other elements are 0."""
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    rows, columns = input.shape[-2:]
    offset = np.arange(columns) - np.arange(rows)[:, None]
    inside = offset >= diagonal if upper else offset <= diagonal
    return np.where(inside, input, np.zeros((), input.dtype))
