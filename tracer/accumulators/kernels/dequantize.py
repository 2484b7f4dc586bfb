"""Replaces the outputs whose sums an accumulator changed, as float32."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.kernels.array_types import INT, NUMBERS, flat, kernel, read_only

_CHANNELS = read_only(types.float64)


@kernel(
    types.void(
        NUMBERS, read_only(types.float32), types.int64, _CHANNELS, _CHANNELS, INT,
        flat(types.float32),
    )
)  # fmt: skip
def replace(
    sums: Any, plain: Any, unchanged: int, step: Any, rest: Any, pixels: int, out: Any
) -> None:
    """Writes each sum times the step of its channel, plus its rest; `plain` where `unchanged`.

    All arrays are flat. A channel has `pixels` sums in a row. An empty `rest` adds nothing.
    """
    size, has_rest = np.uintp(pixels), rest.size > 0
    for row in range(sums.size // pixels):
        channel, here = row % step.size, np.uintp(row) * size
        scale = step[channel]
        if has_rest:
            added = rest[channel]
            for i in range(here, here + size):
                value = np.float32(np.float64(sums[i]) * scale + added)
                out[i] = plain[i] if sums[i] == unchanged else value
        else:
            for i in range(here, here + size):
                value = np.float32(np.float64(sums[i]) * scale)
                out[i] = plain[i] if sums[i] == unchanged else value
