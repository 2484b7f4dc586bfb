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


def _function(name: str, count: int = 1, is_double: bool = False) -> Callable[..., Array]:
    """Returns a function of `count` arrays, which are broadcast, as float32.

    A function of doubles is rounded to float32 once.
    """

    def apply(*arrays: Array) -> Array:
        own = _library()[name if is_double else f"{name}f"]
        kind = ctypes.c_double if is_double else ctypes.c_float
        own.restype, own.argtypes = kind, [kind] * count
        values = np.broadcast_arrays(*arrays)
        results = map(own, *[each.ravel().tolist() for each in values])
        return np.fromiter(results, np.float32, values[0].size).reshape(values[0].shape)

    return apply


exp, log, log1p = map(_function, ("exp", "log", "log1p"))
sin, cos, tan = map(_function, ("sin", "cos", "tan"))
asin, acos, atan = map(_function, ("asin", "acos", "atan"))
sinh, cosh, tanh = map(_function, ("sinh", "cosh", "tanh"))
asinh, acosh, atanh = map(_function, ("asinh", "acosh", "atanh"))
power, power_of_doubles = _function("pow", 2), _function("pow", 2, is_double=True)
