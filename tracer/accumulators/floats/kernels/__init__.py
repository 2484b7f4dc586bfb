"""Kernels of float sums; `loaded` imports a module, and a kernel is compiled at its first call.

A loop over columns is within the loop over k, so that compilers put columns in vector lanes: each
function of `lanes` is branch-free arithmetic on one lane.

- `lanes`: one lane: a float64 in a format of fewer bits;
- `sequential`: sums term after term;
- `blocks`: block multiply-adds;
- `singles`: both in lanes of float32, where these are as exact.
"""

from types import ModuleType

from tracer.interpreter import compiled_code

BITS = 24
"""Bits of a draw: a float64 holds at least as many below those that a format keeps."""
INDEX_STEP, STEP_STEP, SEED_STEP = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0xD1342543DE82EF95
"""Odd numbers that spread indices, steps and seeds over 64 bits."""
MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Shifts and factors of the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
LAST_SHIFT = 31
"""Constants of the hash of stochastic rounding, here because compiled code depends on them."""


def loaded(name: str) -> ModuleType:
    """The kernels of the module `name` of this package."""
    return compiled_code.loaded(name, __name__)
