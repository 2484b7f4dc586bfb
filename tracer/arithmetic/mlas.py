"""Functions of float32 as MLAS computes them, the same at every place of a buffer."""

from collections.abc import Callable

import numpy as np

from tracer.interpreter.compiled_code import loaded
from tracer.support.types import Array

_PACKAGE = "tracer.arithmetic.kernels"


def _function(name: str) -> Callable[[Array], Array]:
    """Returns a function of float32 arrays."""

    def apply(x: Array) -> Array:
        out = np.empty(x.size, np.float32)
        getattr(loaded("rows", _PACKAGE), name)(np.ascontiguousarray(x).reshape(-1), out)
        return out.reshape(x.shape)

    return apply


exp, erf, tanh, logistic = map(_function, ("exp", "erf", "tanh", "logistic"))


def multiply_add(x: Array, y: Array, z: Array) -> Array:
    """Returns x y + z of float32 arrays, which are broadcast, rounded once."""
    x, y, z = np.broadcast_arrays(x, y, z)
    out = np.empty(x.size, np.float32)
    rows = [np.ascontiguousarray(each).reshape(-1) for each in (x, y, z)]
    loaded("rows", _PACKAGE).multiply_add(*rows, out)
    return out.reshape(x.shape)
