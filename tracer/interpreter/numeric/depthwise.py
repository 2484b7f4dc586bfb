"""Depthwise convolution in numpy: one pass per kernel position, without matrix products."""

from typing import Any

import numpy as np

from tracer import limits
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.interpreter.numeric.windows import Window, padded, patches
from tracer.support.types import Array

_TILE = 1 << 15
"""Output elements of a block, which with its input stays in the second-level cache."""


def depthwise(x: Array, weights: Array, window: Window, group: int) -> Array:
    """Convolves `x` (N, C, *size) with `weights` (C * m, 1, *kernel) into (N, C * m, *out)."""
    maps = len(weights)
    repeat = maps // group
    limits.allow((len(x), maps, *window.out), x.dtype)
    out = buffer_pool.empty((len(x), maps, *window.out), x.dtype)
    channels = parallel.pieces(group, max(_TILE // (window.pixels * repeat), 1))
    kernels = weights.reshape(group, repeat, len(window.positions))
    work = [(image, part) for image in range(len(x)) for part in channels]

    def block(index: int) -> None:
        image, part = work[index]
        view = patches(padded(x[image : image + 1, part], window), window)[0]
        target = out[image].reshape(group, repeat, *window.out)[part]
        _accumulate(view, kernels[part], window, target)

    parallel.run_blocks(len(work), block)
    return out


def _accumulate(view: Array, kernels: Array, window: Window, target: Array) -> None:
    """Sums over the kernel positions in row-major order."""
    product = np.empty_like(target)
    planes = view[:, None]
    factors = kernels.reshape(*kernels.shape, *[1] * len(window.out))
    for number, position in enumerate(window.positions):
        index: Any = (slice(None), slice(None), *position)
        plane, factor = planes[index], factors[:, :, number]
        if number == 0:
            np.multiply(plane, factor, out=target)
        else:
            np.multiply(plane, factor, out=product)
            np.add(target, product, out=target)
