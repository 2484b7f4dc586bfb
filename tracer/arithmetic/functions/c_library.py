"""Functions of float32 as the C library of this machine computes them, one number after another.

onnxruntime calls the library where it has no vectors: for whole operators, and for what is left
over at the end of a buffer.
"""

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import cache

import numpy as np

from tracer.support.types import Array


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m"))  # looking for it starts a program


def _function(name: str, count: int = 1) -> Callable[..., Array]:
    """Returns a function of `count` float32 arrays, which are broadcast."""

    def apply(*arrays: Array) -> Array:
        single = _library()[f"{name}f"]
        single.restype, single.argtypes = ctypes.c_float, [ctypes.c_float] * count
        values = np.broadcast_arrays(*arrays)
        results = map(single, *[each.ravel().tolist() for each in values])
        return np.fromiter(results, np.float32, values[0].size).reshape(values[0].shape)

    return apply


exp, log, log1p = map(_function, ("exp", "log", "log1p"))
sin, cos, tan = map(_function, ("sin", "cos", "tan"))
asin, acos, atan = map(_function, ("asin", "acos", "atan"))
sinh, cosh = map(_function, ("sinh", "cosh"))
asinh, acosh, atanh = map(_function, ("asinh", "acosh", "atanh"))
power = _function("pow", 2)
