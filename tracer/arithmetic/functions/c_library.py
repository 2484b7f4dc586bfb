"""Functions of float32 as the C library of this machine computes them, one number after another."""

from collections.abc import Callable

import numpy as np

from tracer.interpreter.compiled_code import loaded
from tracer.support.types import Array

_PACKAGE = "tracer.arithmetic.kernels"


def _function(name: str) -> Callable[[Array], Array]:
    """Returns a function of float32 arrays."""

    def apply(x: Array) -> Array:
        kernels = loaded("c_library", _PACKAGE)
        out = np.empty(x.size, np.float32)
        kernels.apply(kernels.NAMES.index(name), np.ascontiguousarray(x).reshape(-1), out)
        return out.reshape(x.shape)

    return apply


exp, log, log1p = map(_function, ("exp", "log", "log1p"))
sin, cos, tan = map(_function, ("sin", "cos", "tan"))
asin, acos, atan = map(_function, ("asin", "acos", "atan"))
sinh, cosh = map(_function, ("sinh", "cosh"))
asinh, acosh, atanh = map(_function, ("asinh", "acosh", "atanh"))


def power(bases: Array, exponents: Array) -> Array:
    """Returns float32 `bases` to the powers `exponents`, which are broadcast."""
    shape = np.broadcast_shapes(bases.shape, exponents.shape)
    pair = [np.ascontiguousarray(np.broadcast_to(x, shape)).reshape(-1) for x in (bases, exponents)]
    out = np.empty(pair[0].size, np.float32)
    loaded("c_library", _PACKAGE).power(*pair, out)
    return out.reshape(shape)
