"""Block multiply-adds of AMD's matrix cores, by card and by format of the operands.

The rules are those of MMA-Sim (arXiv 2511.10909), and of Khattak and Mikaitis (arXiv 2512.07004)
where the two differ. No results of the cards are public.
"""

from collections.abc import Mapping

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.any_accumulator import ByOperands
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma, Rule
from tracer.accumulators.spec.float_format import float_format

_FP8 = ("fp8-e4m3fnuz", "fp8-e5m2fnuz")


def _rows(rule: Rule, *rows: tuple[int, tuple[str, ...]]) -> Mapping[str, BlockFma]:
    """Returns an accumulator for each format of operands: (length, operands)."""
    return {
        name: BlockFma(length, 24, SINGLE, "rne", float_format(name), rule)
        for length, names in rows
        for name in names
    }


SUMS: Mapping[str, Mapping[str, BlockFma]] = {
    "amd:mi100": _rows("exact", (4, ("fp16",)), (2, ("bf16",))),
    "amd:mi250": _rows("pairwise", (4, ("fp16", "bf16"))),
    "amd:mi300x": {
        **_rows("late", (8, ("fp16", "bf16")), (4, ("tf32",))),
        **_rows("odd-even", (16, _FP8)),
    },
}
_WHAT: Mapping[str, tuple[str, str]] = {
    "amd:mi100": (
        "CDNA1 adds 4 products of fp16 (bf16: 2) and C exactly, and rounds to fp32 once.",
        "Where models differ, it adds exactly, and not in pairs.",
    ),
    "amd:mi250": (
        "CDNA2 adds 4 products in pairs in fp32, then C; subnormal numbers are 0.",
        "The older instructions for bf16, of 2 products, are left out.",
    ),
    "amd:mi300x": (
        "CDNA3 truncates 8 products (tf32: 4, fp8: 16) at their greatest exponent, then adds C.",
        "Sums of even and odd k in fp8 are rounded down; one model truncates them.",
    ),
}
PRESETS = tuple(
    Preset(name, what, "MMA-Sim, arXiv 2511.10909; arXiv 2512.07004", "modelled", leaves_out,
           ByOperands(name, SUMS[name]))
    for name, (what, leaves_out) in _WHAT.items()
)  # fmt: skip
