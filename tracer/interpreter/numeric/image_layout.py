"""Arranges images so that neighbouring outputs read neighbouring elements."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracer import limits
from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import buffer_pool, task_team
from tracer.interpreter.numeric.windows import Window
from tracer.support.types import Array

_BLOCK = 1 << 15
"""Elements of a block: about 10 us."""


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """The flat order of the elements that windows read: channel, phase, line, column.

    The padded image is split into phases by the strides, so that the elements which a kernel
    position reads for neighbouring outputs are contiguous. `phases` are those that any position
    reads, `cells` the size of each. `origins` holds, per kernel position, the index of the element
    for the first output, within a channel of `size` elements.
    """

    phases: tuple[tuple[int, ...], ...]
    cells: tuple[int, ...]
    origins: tuple[int, ...]
    size: int
    count: int
    grid: int
    width: int

    def offsets(self, channels: int) -> Array:
        """Returns the index that each channel and kernel position reads for the first output."""
        starts = np.arange(channels, dtype=np.int64)[:, None] * self.size
        return (starts + np.array(self.origins, np.int64)).reshape(-1)


@lru_cache(maxsize=1024)
def layout(window: Window) -> ImageLayout:
    """Returns the layout for windows over one or two axes; cached across runs."""
    strides, spread = window.strides, window.dilations
    reach = [(n - 1) * s + e for n, s, e in zip(window.out, strides, window.extent, strict=True)]
    cells = tuple(-(-n // s) for n, s in zip(reach, strides, strict=True))
    steps = [int(np.prod(cells[i + 1 :])) for i in range(len(cells))]
    moved = [
        [divmod(p * d, s) for p, d, s in zip(position, spread, strides, strict=True)]
        for position in np.ndindex(*window.kernel)
    ]
    phases = sorted({tuple(part for _, part in where) for where in moved})
    plane = int(np.prod(cells))
    origins = tuple(
        phases.index(tuple(part for _, part in where)) * plane
        + sum(whole * step for (whole, _), step in zip(where, steps, strict=True))
        for where in moved
    )
    count = sum((n - 1) * step for n, step in zip(window.out, steps, strict=True)) + 1
    grid, width = cells[-1], window.out[-1]
    if grid == width:  # no gaps between the lines
        grid = width = window.pixels
    return ImageLayout(tuple(phases), cells, origins, len(phases) * plane, count, grid, width)


def source(x: Array, window: Window, arranged: ImageLayout, fill: float = 0) -> Array:
    """Returns the images in the layout, padding filled; a stretch of zeros follows the last."""
    if window.pointwise:
        return np.ascontiguousarray(x).reshape(-1)
    planes = x.shape[0] * x.shape[1]
    total = planes * arranged.size
    limits.allow((total,), np.float32)
    out = buffer_pool.empty((total + loaded("planes").STRETCH,), np.float32)
    out[total:] = 0
    flat = np.ascontiguousarray(x).reshape(-1)
    axes = zip(x.shape[2:], arranged.cells, window.strides, window.before, strict=True)
    geometry = np.array(list(axes), np.int64)
    phases = np.array(arranged.phases, np.int64)
    if len(geometry) == 1:  # one axis is an image of one line
        geometry = np.concatenate([[[1, 1, 1, 0]], geometry])
        phases = np.concatenate([np.zeros_like(phases), phases], axis=1)
    each = max(_BLOCK // arranged.size, 1)
    filling = np.array([fill], np.float32)
    task_team.share(loaded("image_layout").arrange, -(-planes // each),
                (flat, out, geometry, phases, filling), (planes, each))  # fmt: skip
    return out
