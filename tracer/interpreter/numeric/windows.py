"""Windows that slide over padded axes: the geometry of convolutions and poolings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.compiled_code import UnfitError
from tracer.support.types import Array, type_text

_Ints = Sequence[int] | None
_Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """Per spatial axis: kernel size, stride, dilation, padding before and after, output size."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    out: tuple[int, ...]

    @cached_property
    def extent(self) -> tuple[int, ...]:
        """Input elements that a window spans, including dilation."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @cached_property
    def pixels(self) -> int:
        """The number of windows."""
        return math.prod(self.out)

    @cached_property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """The positions of a window's elements, in row-major order."""
        return tuple(product(*map(range, self.kernel)))

    @cached_property
    def pointwise(self) -> bool:
        """Whether each window is one element, in order."""
        unit = all(k == s == 1 for k, s in zip(self.kernel, self.strides, strict=True))
        return unit and not any(self.before) and not any(self.after)


def window(
    size: Sequence[int], kernel: Sequence[int], strides: _Ints, pads: _Ints, dilations: _Ints,
    auto_pad: str, ceil_mode: int = 0,
) -> Window:  # fmt: skip
    """Returns the windows over axes of `size` by the attributes of Conv or a pooling.

    With `ceil_mode` the last window may reach beyond the padding after the input. Raises
    ModelError if the attributes contradict each other.
    """
    numbers = (None if n is None else tuple(n) for n in (size, kernel, strides, pads, dilations))
    return _window(*numbers, auto_pad, ceil_mode)


@lru_cache(maxsize=1024)
def _window(
    size: _Sizes, kernel: _Sizes, strides: _Ints, pads: _Ints, dilations: _Ints, auto_pad: str,
    ceil_mode: int,
) -> Window:  # fmt: skip
    """Returns the windows, of shapes known from the last run without computing them again."""
    rank = len(size)
    strides = _per_axis("strides", strides, rank)
    dilations = _per_axis("dilations", dilations, rank)
    extent = [
        (k - 1) * d + 1 for k, d in zip(_per_axis("kernel", kernel, rank), dilations, strict=True)
    ]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        out = [-(-n // s) for n, s in zip(size, strides, strict=True)]
        short = [
            max((o - 1) * s + e - n, 0)
            for o, s, e, n in zip(out, strides, extent, size, strict=True)
        ]
        less, more = [t // 2 for t in short], [-(-t // 2) for t in short]
        before, after = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    elif auto_pad in ("NOTSET", "VALID"):
        around = [0] * (2 * rank) if pads is None or auto_pad == "VALID" else list(pads)
        if len(around) != 2 * rank:
            raise ModelError(f"pads {around} are {len(around)} numbers, {2 * rank} expected")
        before, after = around[:rank], around[rank:]
        spans = [n + b + a - e for n, b, a, e in zip(size, before, after, extent, strict=True)]
        out = [
            (-(-span // s) if ceil_mode else span // s) + 1
            for span, s in zip(spans, strides, strict=True)
        ]
        if ceil_mode:  # a window must not begin beyond the input and the padding before it
            starts = zip(out, strides, size, before, strict=True)
            out = [o - 1 if (o - 1) * s >= n + b else o for o, s, n, b in starts]
    else:
        raise ModelError(
            f"auto_pad '{auto_pad}' is not one of NOTSET, SAME_UPPER, SAME_LOWER, VALID"
        )
    if any(o < 1 for o in out):
        raise ModelError(f"the kernel spans {extent}, more than the padded input of {list(size)}")
    fields = (kernel, strides, dilations, before, after, out)
    return Window(*(tuple(int(n) for n in numbers) for numbers in fields))


def padded(x: Array, window: Window, fill: Any = 0, rows: slice | None = None) -> Array:
    """Returns the part of `x` (N, C, *size) that the windows read, with padding.

    `rows` selects windows along the first spatial axis. The result is a view of `x` if it needs
    no padding.
    """
    first = rows or slice(0, window.out[0])
    reads, writes, spans = _reach(window, x.shape[2:], first.start, first.stop)
    shape = (*x.shape[:2], *spans)
    source = x[reads]
    if source.shape == shape:
        return source
    limits.allow(shape, x.dtype)
    out: Array = np.full(shape, fill, x.dtype) if fill else np.zeros(shape, x.dtype)
    out[writes] = source
    return out


@lru_cache(maxsize=4096)
def _reach(
    window: Window, sizes: tuple[int, ...], first: int, last: int
) -> tuple[tuple[slice, ...], tuple[slice, ...], tuple[int, ...]]:
    """Returns what to read of images and to write of padded images, and the size of the latter."""
    rank = len(window.kernel)
    lows, highs = [first] + [0] * (rank - 1), [last, *window.out[1:]]
    reads, writes, spans = [slice(None)] * 2, [slice(None)] * 2, []
    for axis, (low, high) in enumerate(zip(lows, highs, strict=True)):
        start = low * window.strides[axis] - window.before[axis]
        stop = (high - 1) * window.strides[axis] - window.before[axis] + window.extent[axis]
        inside = slice(min(max(start, 0), sizes[axis]), max(min(stop, sizes[axis]), 0))
        reads.append(inside)
        writes.append(slice(inside.start - start, inside.stop - start))
        spans.append(stop - start)
    return tuple(reads), tuple(writes), tuple(spans)


def patches(ready: Array, window: Window, rows: int | None = None) -> Array:
    """Returns a view (N, C, *kernel, *out) of a result of `padded`, with `rows` windows."""
    out = (window.out[0] if rows is None else rows, *window.out[1:])
    spans = zip(out, window.strides, window.extent, ready.shape[2:], strict=True)
    if any((n - 1) * stride + extent > size for n, stride, extent, size in spans):
        raise UnfitError(f"{window} is beyond {type_text(ready)}")  # a view is not compared
    steps = ready.strides[2:]
    inner = tuple(s * d for s, d in zip(steps, window.dilations, strict=True))
    outer = tuple(s * t for s, t in zip(steps, window.strides, strict=True))
    return as_strided(
        ready,
        (*ready.shape[:2], *window.kernel, *out),
        (*ready.strides[:2], *inner, *outer),
        writeable=False,
    )


def _per_axis(name: str, values: Sequence[int] | None, rank: int) -> Sequence[int]:
    numbers = [1] * rank if values is None else list(values)
    if len(numbers) != rank or any(n < 1 for n in numbers):
        raise ModelError(f"{name} {numbers} do not fit {rank} spatial axes, each at least 1")
    return numbers
