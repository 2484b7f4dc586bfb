"""Changes of shape: Reshape, Transpose, Expand, Slice, Split, Concat, Pad and their relatives."""

import math
from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.tensors import nonnegative_axes, nonnegative_axis
from tracer.interpreter.operators import Ints, NodeContext, operator
from tracer.support.types import Array

_PAD_MODES = ("reflect", "edge", "wrap")


operator("Identity")(lambda input: input)
operator("Size")(lambda data: np.array(data.size, np.int64))
operator("Transpose")(lambda data, *, perm=None: data.transpose(perm))


@operator("Shape")
def shape(data: Array, *, start: int = 0, end: int | None = None) -> Array:
    """The shape, or its part from `start` to `end`."""
    return np.array(data.shape[slice(start, end)], np.int64)


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
def reshape_1(data: Array, *, shape: Ints = None, consumed_inputs: Ints = None) -> Array:
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
def squeeze_1(data: Array, *, axes: Ints = None) -> Array:
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


@operator("Slice", since=10)
def slice_(
    data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    """A view from `starts` to `ends` by `steps`; bounds are clamped to the axis."""
    dims = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    index: list[slice] = [slice(None)] * data.ndim
    for axis, start, end, step in zip(dims, starts.tolist(), ends.tolist(), strides, strict=True):
        index[axis] = _range(data.shape[axis], start, end, step)
    return data[tuple(index)]


@operator("Slice")
def slice_1(data: Array, *, axes: Ints = None, ends: Sequence[int], starts: Sequence[int]) -> Array:
    """Slice before opset 10: bounds are attributes."""
    return slice_(data, np.array(starts), np.array(ends), None if axes is None else np.array(axes))


@operator("Concat", since=4)
def concat(*inputs: Array, axis: int) -> Array:
    """Concatenates the inputs along `axis`."""
    if len(inputs) == 1:
        return inputs[0]
    shape = list(inputs[0].shape)
    shape[axis] = sum(v.shape[axis] for v in inputs)
    limits.allow(shape, inputs[0].dtype)
    return np.concatenate(inputs, axis)


operator("Concat")(lambda *inputs, axis=1: concat(*inputs, axis=axis))  # before opset 4


@operator("Split", since=13)
def split(
    input: Array, split: Array | None = None, *, axis: int = 0, num_outputs: int | None = None,
    ctx: NodeContext
) -> tuple[Array, ...]:  # fmt: skip
    """Views of the sizes in `split` (default: equal sizes, one per output)."""
    count = num_outputs or len(ctx.outputs_named)
    return _parts(input, None if split is None else split.tolist(), axis, count)


@operator("Split", since=2)
def split_2(
    input: Array, *, axis: int = 0, split: Ints = None, ctx: NodeContext
) -> tuple[Array, ...]:
    """Split before opset 13: sizes are an attribute."""
    return _parts(input, split, axis, len(ctx.outputs_named))


@operator("Split")
def split_1(
    input: Array, split: Array | Ints = None, *, axis: int = 0, ctx: NodeContext
) -> tuple[Array, ...]:
    """Split before opset 2: sizes are an attribute, or an input of the same name."""
    sizes = None if split is None else [int(n) for n in split]
    return _parts(input, sizes, axis, len(ctx.outputs_named))


@operator("Pad", since=11)
def pad(
    data: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None,
    *, mode: str = "constant",
) -> Array:  # fmt: skip
    """Lengthens axes at both ends; a negative width shortens."""
    dims = nonnegative_axes(axes, data.ndim)
    fill = np.zeros((), data.dtype) if constant_value is None else constant_value.reshape(-1)[0]
    widths = [(0, 0)] * data.ndim
    for number, axis in enumerate(dims):
        widths[axis] = (int(pads[number]), int(pads[number + len(dims)]))
    ends = [_kept_and_added(*each) for each in zip(data.shape, widths, strict=True)]
    data, more = data[tuple(kept for kept, _ in ends)], [added for _, added in ends]
    limits.allow([n + a + b for n, (a, b) in zip(data.shape, more, strict=True)], data.dtype)
    if mode == "constant":
        return np.pad(data, more, constant_values=fill)
    if mode not in _PAD_MODES:
        raise ModelError(f"mode '{mode}' is not one of constant, {', '.join(_PAD_MODES)}")
    return np.pad(data, more, mode=mode)  # type: ignore[call-overload]


@operator("Pad", since=2)
def pad_2(data: Array, *, mode: str = "constant", pads: Sequence[int], value: float = 0.0) -> Array:
    """Pad before opset 11: widths are an attribute."""
    return pad(data, np.array(pads), np.array(value, data.dtype), mode=mode)


@operator("Pad")
def pad_1(
    data: Array, *, mode: str = "constant", paddings: Sequence[int], value: float = 0.0
) -> Array:
    """Pad before opset 2: the attribute is called `paddings`."""
    return pad_2(data, mode=mode, pads=paddings, value=value)


@operator("Compress", since=9)
def compress(input: Array, condition: Array, *, axis: int | None = None) -> Array:
    """The slices along `axis` (default: of the flat tensor) where the condition holds."""
    kept = int(np.count_nonzero(condition))
    shape = [kept]
    if axis is not None:
        shape = list(input.shape)
        shape[nonnegative_axis(axis, input.ndim)] = kept
    limits.allow(shape, input.dtype)
    return np.compress(condition, input, axis)


@operator("ReverseSequence", since=10, copies=1)
def reverse_sequence(
    input: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    """Reverses the first `sequence_lens` steps of each batch entry."""
    rows = np.moveaxis(input, (time_axis, batch_axis), (0, 1))
    steps = np.arange(rows.shape[0])[:, None]
    back = sequence_lens[None] - 1 - steps
    order = np.where(back >= 0, back, steps)
    reversed_ = rows[order, np.arange(rows.shape[1])]
    return np.moveaxis(reversed_, (0, 1), (time_axis, batch_axis))


def _range(size: int, start: int, end: int, step: int) -> slice:
    """Returns bounds clamped by Slice's specification, which differs from Python's for step < 0."""
    if step == 0:
        raise ModelError("a step is 0")
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    if not size:
        return slice(0, 0)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, end if end >= 0 else None, step)


def _parts(x: Array, sizes: Ints, axis: int, count: int) -> tuple[Array, ...]:
    length = x.shape[axis]
    if sizes is None:
        each = -(-length // count)
        sizes = [min(each, max(length - i * each, 0)) for i in range(count)]
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise ModelError(f"parts of {list(sizes)} do not add up to an axis of {length}")
    return tuple(np.split(x, np.cumsum(sizes)[:-1].tolist(), axis))


def _kept_and_added(size: int, widths: tuple[int, int]) -> tuple[slice, tuple[int, int]]:
    """Returns what is left of an axis by negative widths, and what is added before and after.

    What is cut beyond the axis is taken from the other side. Raises ModelError below size 0.
    """
    low, high = widths
    if size + low + high < 0:
        raise ModelError(f"pads {low} and {high} cut more than the {size} elements of an axis")
    first = min(max(-low, 0), size)
    last = max(size - max(-high, 0), first)
    low, high = low + first, high + size - last
    return slice(first, last), (max(low + min(high, 0), 0), max(high + min(low, 0), 0))
