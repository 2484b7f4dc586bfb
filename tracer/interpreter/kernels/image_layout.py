"""Pads images and splits them into phases by strides; see `numeric.image_layout`."""

from typing import Any

import numpy as np
from numba import cfunc, njit, types

from tracer.interpreter.kernel_entries import INTEGERS, READ, WRITTEN, task
from tracer.interpreter.kernels.task_arguments import TASK, floats, integers

_INT = types.intp
_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")


@njit(types.void(_READ, _INT, _WRITE, _INT, _INT, _INT), nogil=True, cache=True)
def _line(images: Any, start: int, out: Any, target: int, count: int, step: int) -> None:
    """Copies every `step`-th element; indices are unsigned, see `elementwise`."""
    here, there = np.uintp(start), np.uintp(target)
    if step == 1:
        for i in range(np.uintp(count)):
            out[there + i] = images[here + i]
    elif step == 2:  # a constant step is vectorised
        for i in range(np.uintp(count)):
            out[there + i] = images[here + i * np.uintp(2)]
    else:
        wide = np.uintp(step)
        for i in range(np.uintp(count)):
            out[there + i] = images[here + i * wide]


@njit(types.void(_WRITE, _INT, _INT, types.float32), nogil=True, cache=True)
def _fill(out: Any, target: int, count: int, value: Any) -> None:
    there = np.uintp(target)
    for i in range(np.uintp(count)):
        out[there + i] = value


def _fits(
    _: int, images: Any, out: Any, geometry: Any, phases: Any, fill: Any, planes: int, each: int
) -> bool:
    """Whether the planes are in the images, and their cells in `out`."""
    if (geometry.size, phases.size % 2, fill.size) != (8, 0, 1) or each < 1:
        return False
    height, lines, down, _, width, cells, across, _ = geometry.ravel().tolist()
    return bool(
        min(height, lines, width, cells) >= 0 and down > 0 < across
        and planes * height * width <= images.size
        and planes * phases.size // 2 * lines * cells <= out.size
    )  # fmt: skip


@task(READ, WRITTEN, INTEGERS, INTEGERS, READ, fits=_fits)
@cfunc(TASK, cache=True, error_model="numpy")
def arrange(words: Any, block: int) -> None:
    """Arranges some planes of flat images, padded and split into phases.

    Arguments: images, `out` flat (plane, phase, line, column), geometry, phases, the fill value of
    padding (one element); planes in total and per block. Geometry holds size, cells, stride and
    padding before, for lines and then for columns; phases hold the phase of lines and of columns.
    """
    images, out = floats(words, 0), floats(words, 2)
    geometry, phases = integers(words, 4), integers(words, 6).reshape(-1, 2)
    fill, planes, each = floats(words, 8)[0], words[10], words[11]
    height, lines, down, above = geometry[0], geometry[1], geometry[2], geometry[3]
    width, cells, across, left = geometry[4], geometry[5], geometry[6], geometry[7]
    target = block * each * len(phases) * lines * cells
    for plane in range(block * each, min((block + 1) * each, planes)):
        for phase in range(len(phases)):
            skip = phases[phase, 1] - left
            first = min(max((-skip + across - 1) // across, 0), cells)
            stop = max(min((width - skip + across - 1) // across, cells), first)
            for line in range(lines):
                row = line * down + phases[phase, 0] - above
                if row < 0 or row >= height:
                    _fill(out, target, cells, fill)
                else:
                    origin = (plane * height + row) * width + skip + first * across
                    _fill(out, target, first, fill)
                    _line(images, origin, out, target + first, stop - first, across)
                    _fill(out, target + stop, cells - stop, fill)
                target += cells
