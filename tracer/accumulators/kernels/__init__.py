"""Kernels of narrow sums; `loaded` imports a module, and a kernel is compiled at its first call.

- `steps`: what follows each multiply-add of the tiles of `interpreter.kernels.tiles`, and what
  becomes of their sums;
- `tally_stores`: statistics of their sums, and the tables that have them;
- `single_sums`: sums one by one in integers, in any order, by any overflow and rounding;
- `sum_statistics`: widths, histograms and errors of sums in arrays, and errors of float sums.
"""

from types import ModuleType

from tracer.interpreter import compiled_code


def loaded(name: str) -> ModuleType:
    """The kernels of the module `name` of this package."""
    return compiled_code.loaded(name, __name__)
