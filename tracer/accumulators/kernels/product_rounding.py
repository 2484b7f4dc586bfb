"""Rounds products, as `spec.rounding` defines it."""

from typing import Any, assert_never

import numpy as np
from numba import types

from tracer.accumulators.kernels.array_types import kernel
from tracer.accumulators.spec.modes import RoundingName

_HALF_EVEN, _HALF_AWAY, _FLOOR, _TRUNCATE, _STOCHASTIC = range(5)
_BITS, _FACTORS = (
    (np.uint64(30), np.uint64(27), np.uint64(31)),
    (
        np.uint64(0xBF58476D1CE4E5B9),
        np.uint64(0x94D049BB133111EB),
    ),
)


def rule_of(name: RoundingName) -> int:
    """Returns the number of a rule."""
    match name:
        case "half-even":
            return _HALF_EVEN
        case "half-away":
            return _HALF_AWAY
        case "floor":
            return _FLOOR
        case "truncate":
            return _TRUNCATE
        case "stochastic":
            return _STOCHASTIC
        case _:
            assert_never(name)


@kernel(types.int64(types.int64, types.int64, types.int64, types.int64))
def rounded(product: int, shift: int, rule: int, salt: int) -> int:
    """The product / 2^shift, rounded; itself for a shift of 0."""
    if shift == 0:
        return product
    floor = product >> shift
    rest, half = product - (floor << shift), 1 << (shift - 1)
    if rule == _HALF_EVEN:
        return floor + ((rest > half) | ((rest == half) & ((floor & 1) == 1)))
    if rule == _HALF_AWAY:
        return floor + ((rest > half) | ((rest == half) & (product > 0)))
    if rule == _TRUNCATE:
        return floor + ((product < 0) & (rest > 0))
    if rule == _STOCHASTIC:
        mixed = np.uint64(product + salt)
        mixed = (mixed ^ (mixed >> _BITS[0])) * _FACTORS[0]
        mixed = (mixed ^ (mixed >> _BITS[1])) * _FACTORS[1]
        mixed ^= mixed >> _BITS[2]
        draw: Any = mixed >> np.uint64(64 - shift)
        up: Any = np.int64(draw) < rest
        return floor + up
    return floor
