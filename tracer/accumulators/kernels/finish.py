"""Bytes from sums in one pass, as `stores.BYTES` computes them from a tile."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.kernels.array_types import TABLE, kernel, read_only

_FLOAT = types.float32
_MAGIC = np.float32(3 << 22)
"""Adding and subtracting it rounds a float32 below 2^22 to an integer."""


@kernel(
    *(
        types.void(TABLE, read_only(types.float64, 2), types.Array(kind, 2, "C"))
        for kind in (types.int8, types.uint8)
    )
)
def finish(sums: Any, parameters: Any, out: Any) -> None:
    """Writes sums (rows, n) as bytes, by the parameters (rows, 8) of each row."""
    for row in range(sums.shape[0]):
        step, rest = parameters[row, 0], parameters[row, 1]
        least, most = _FLOAT(parameters[row, 2]), _FLOAT(parameters[row, 3])
        scale, zero = _FLOAT(parameters[row, 4]), _FLOAT(parameters[row, 7])
        low, high = _FLOAT(parameters[row, 5]), _FLOAT(parameters[row, 6])
        for i in range(sums.shape[1]):
            real = min(max(_FLOAT(np.float64(sums[row, i]) * step + rest), least), most)
            ratio = min(max(_FLOAT(real / scale), low), high)
            rounded = _FLOAT(_FLOAT(ratio + _MAGIC) - _MAGIC)
            out[row, i] = np.int32(_FLOAT(rounded + zero))
