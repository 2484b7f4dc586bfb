"""Compiled kernels of narrow sums; `loaded` imports a module, and compiles it on first use.

- `sequential_sums`: one register, term after term, saturating or observed without a range.
- `grouped_sums`: two stages, groups of terms and their sum, saturating or observed.
- `program_sums`: any order that is a tree, any overflow, products of limited width.
- `product_rounding`: a product without its low bits.
- `sorted_sums`: the order `sorted`, which depends on the products.
- `gather_and_sum`: a whole node, from gathered columns to counts.
- `llvm_sums` and `llvm_vectors`: inner loops in LLVM IR; `tile_io`: panels and tiles in memory.
- `sum_statistics`: widths, histograms and errors; `dequantize`: floats from changed sums.
"""

from types import ModuleType

from tracer.interpreter import kernel_loading


def loaded(name: str) -> ModuleType:
    """The kernels of the module `name` of this package."""
    return kernel_loading.loaded(name, __name__)
