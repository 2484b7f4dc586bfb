"""Kernels of float sums; `loaded` imports a module, and compiles it on first use.

A loop over columns is within the loop over k, so that compilers put columns in vector lanes: each
function of `rounding` is branch-free arithmetic on one lane.

- `rounding`: a float64 in a format of fewer bits;
- `sequential`: sums term after term;
- `blocks`: block multiply-adds;
- `singles`, `single_blocks`: both in lanes of float32, where these are as exact;
- `casts`: arrays in a format;
- `references`: sums in float64, and terms, beside them.
"""

from types import ModuleType

from tracer.interpreter import compiled_code


def loaded(name: str) -> ModuleType:
    """The kernels of the module `name` of this package."""
    return compiled_code.loaded(name, __name__)
