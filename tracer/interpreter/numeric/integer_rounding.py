"""The rounding modes of QONNX, by name, and the integers that a number of bits holds."""

from collections.abc import Callable

import numpy as np

from tracer.errors import ModelError
from tracer.support.types import Array

Round = Callable[[Array], Array]
"""Rounds floats to integers, which stay floats."""


def _away(x: Array) -> Array:
    return np.sign(x) * np.ceil(np.abs(x))


def _half_away(x: Array) -> Array:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _half_to_zero(x: Array) -> Array:
    return np.sign(x) * np.ceil(np.abs(x) - 0.5)


_MODES: dict[str, Round] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": _away,
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_UP": _half_away,
    "HALF_DOWN": _half_to_zero,
}
"""UP and DOWN are away from zero and towards it; so are halves in HALF_UP and HALF_DOWN."""


def rounding(mode: str) -> Round:
    """Returns the function of a rounding mode, in capitals or not. Raises ModelError for others."""
    function = _MODES.get(mode.upper())
    if function is None:
        raise ModelError(f"rounding_mode '{mode}' is not known", f"It may be {', '.join(_MODES)}.")
    return function


def integer_ends(bits: Array, signed: bool, narrow: bool) -> tuple[Array, Array]:
    """Returns the least and the greatest integer of `bits`, of its shape and float type.

    `bits` need be no integer: then the ends are none either, and rounding follows. A narrow range
    lacks the least number if it is signed, else the greatest.
    """
    if signed:
        half = np.exp2(bits - 1)
        return (-half + narrow).astype(bits.dtype), (half - 1).astype(bits.dtype)
    return np.zeros_like(bits), (np.exp2(bits) - 1 - narrow).astype(bits.dtype)
