"""Computes the output of a node from its sums."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.accumulators.engine.sum_runner import UNCHANGED
from tracer.accumulators.kernels import loaded
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.types import Array

Restore = Callable[[Array], Array]
"""Computes the output from sums, int64 in its shape."""


@dataclass(frozen=True, slots=True)
class Dequantize:
    """Computes floats: sums (N, C, *size) times the `step` of their channel, plus the `rest`.

    `rest` is a bias that is no multiple of the step. Both are one number or one for each channel.
    """

    step: Array
    rest: Array | None
    dtype: np.dtype[Any]

    def __call__(self, sums: Array) -> Array:
        """The floats of all sums."""
        out = sums * per_channel(self.step, sums.ndim)
        if self.rest is not None:
            out = out + per_channel(self.rest, sums.ndim)
        return out.astype(self.dtype)


def replaced(output: Array, sums: Array, restore: Restore) -> Array:
    """The output, with the elements that the accumulator changed computed from the sums."""
    if isinstance(restore, Dequantize) and output.dtype == restore.dtype == np.float32:
        return _compiled(output, sums, restore)
    changed = sums != UNCHANGED
    if not changed.any():
        return output
    return np.where(changed, restore(np.where(changed, sums, 0)), output)


def per_channel(values: Array, rank: int) -> Array:
    """One number, or one for each channel of a tensor of `rank` axes."""
    flat = values.reshape(-1)
    return flat.reshape(()) if flat.size == 1 else flat.reshape(-1, *[1] * (rank - 2))


def _compiled(output: Array, sums: Array, restore: Dequantize) -> Array:
    """The same in one pass, image by image."""
    kernel, plain = loaded("dequantize").replace, np.ascontiguousarray(output)
    step, rest = (
        np.zeros(0)
        if values is None
        else np.ascontiguousarray(np.broadcast_to(values.reshape(-1), output.shape[1]), np.float64)
        for values in (restore.step, restore.rest)
    )
    out = buffer_pool.empty(output.shape, np.float32)
    pixels = out[0, 0].size if out.size else 1
    images = parallel.pieces(len(output), max(parallel.BLOCK * len(output) // (out.size + 1), 1))

    def block(index: int) -> None:
        part = images[index]
        kernel(sums[part].reshape(-1), plain[part].reshape(-1), UNCHANGED, step, rest, pixels,
               out[part].reshape(-1))  # fmt: skip

    parallel.run_blocks(len(images), block)
    return out
