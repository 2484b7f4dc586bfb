"""Floats made of the sums that an accumulator changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

_SUMS = types.Array(types.int64, 1, "C", readonly=True)
_PLAIN = types.Array(types.float32, 1, "C", readonly=True)
_CHANNELS = types.Array(types.float64, 1, "C", readonly=True)


@njit(
    types.void(_SUMS, _PLAIN, types.int64, _CHANNELS, _CHANNELS, types.intp, types.float32[::1]),
    nogil=True,
    cache=True,
)
def replace(sums: Any, plain: Any, kept: int, step: Any, rest: Any, pixels: int, out: Any) -> None:
    """Each of the flat sums times the step of its channel, plus its rest; plain where `kept`.

    Of a channel there are `pixels` sums in a row. No `rest` is none at all.
    """
    size, lasting = np.uintp(pixels), rest.size > 0
    for row in range(sums.size // pixels):
        channel, here = row % step.size, np.uintp(row) * size
        each = step[channel]
        if lasting:
            more = rest[channel]
            for i in range(here, here + size):
                made = np.float32(np.float64(sums[i]) * each + more)
                out[i] = plain[i] if sums[i] == kept else made
        else:
            for i in range(here, here + size):
                made = np.float32(np.float64(sums[i]) * each)
                out[i] = plain[i] if sums[i] == kept else made
