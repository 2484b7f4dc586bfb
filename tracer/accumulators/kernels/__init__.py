"""Kernels of narrow sums; `loaded` imports a module, and compiles it on first use.

- `steps`: what follows each multiply-add of the tiles of `interpreter.kernels.tiles`;
- `stores`: what becomes of their sums;
- `tally_stores`: statistics of their sums, in tables that `tally_layout` describes;
- `single_sums`: sums one by one in integers, in any order, by any overflow and rounding;
- `product_rounding`: a product without its low bits;
- `float_errors`: errors of float sums;
- `sum_statistics`: widths, histograms and errors of sums in arrays.
"""

from types import ModuleType

from tracer.interpreter import compiled_code


def loaded(name: str) -> ModuleType:
    """The kernels of the module `name` of this package."""
    return compiled_code.loaded(name, __name__)
