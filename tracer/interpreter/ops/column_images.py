"""Col2Im: images from columns of blocks, which add up where they overlap."""

import math
from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Ints = Sequence[int] | None


@operator("Col2Im", since=18)
def col2im(
    input: Array,
    image_shape: Array,
    block_shape: Array,
    *,
    dilations: _Ints = None,
    pads: _Ints = None,
    strides: _Ints = None,
) -> Array:
    """Images (N, C, *image_shape) from columns (N, C times the size of a block, blocks)."""
    image, block = image_shape.tolist(), block_shape.tolist()
    rank = len(image)
    spread, steps = list(dilations or [1] * rank), list(strides or [1] * rank)
    around = list(pads or [0] * (2 * rank))
    sizes = [n + around[i] + around[rank + i] for i, n in enumerate(image)]
    if not len(block) == len(spread) == len(steps) == rank == len(around) / 2:
        raise ModelError(f"blocks {block} and attributes do not fit images {image}")
    counts = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(sizes, block, spread, steps, strict=True)
    ]
    volume = math.prod(block)
    if min(*block, *counts, *spread, *steps) < 1 or input.shape[1] % volume or (
        input.shape[2] != math.prod(counts)
    ):  # fmt: skip
        raise ModelError(f"columns {list(input.shape)} do not fit {counts} blocks of {block}")
    shape = (len(input), input.shape[1] // volume)
    limits.allow((*shape, *sizes), input.dtype)
    columns = input.reshape(*shape, *block, *counts)
    images = np.zeros((*shape, *sizes), input.dtype)
    for position in np.ndindex(*block):
        reached = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(position, spread, counts, steps, strict=True)
        )
        images[:, :, *reached] += columns[:, :, *position]
    inside = tuple(slice(start, start + n) for start, n in zip(around, image, strict=False))
    return images[:, :, *inside]
