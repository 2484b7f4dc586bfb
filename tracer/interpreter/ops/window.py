"""BlackmanWindow, HammingWindow, HannWindow: sums of cosines."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from tracer import limits
from tracer.interpreter.registry import operator
from tracer.support.types import Array

# F. J. Harris, "On the use of windows for harmonic analysis", Proc. IEEE 66 (1978): factors of
# cos(k * phase), k = 0, 1, ...; ONNX's Hamming has the exact 25/46, not the rounded 0.54.
_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}


def window(factors: Sequence[float]) -> Callable[..., Array]:
    """Returns the operator; a periodic window is one longer, without its last value."""

    def function(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
        count = int(size.reshape(-1)[0])
        limits.allow((count,), np.float64)
        phase = np.arange(count) * (2 * np.pi / max(count if periodic else count - 1, 1))
        total = sum(factor * np.cos(k * phase) for k, factor in enumerate(factors))
        return np.asarray(total).astype(onnx.helper.tensor_dtype_to_np_dtype(output_datatype))

    return function


for _name, _factors in _WINDOWS.items():
    operator(_name, since=17)(window(_factors))
