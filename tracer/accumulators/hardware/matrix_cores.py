"""Block multiply-adds of NVIDIA's tensor cores and AMD's matrix cores, by card and operand format.

NVIDIA's lengths, bits and least exponents are those that Khattak and Mikaitis (arXiv 2512.07004)
and MMA-Sim (arXiv 2511.10909) found by tests of the cards. AMD's rules are those of MMA-Sim, and of
Khattak and Mikaitis where the two differ; no results of AMD's cards are public, so that models of
MATLAB-tensor-core are what checks them: 500 random rows of two blocks for each of 9 formats have
equal bits, but for 4 rows at which the model of MI300X fails. A preset is the instruction: a
library may part k among blocks of threads, and add their sums.
"""

from collections.abc import Mapping
from dataclasses import replace

from tracer.accumulators.hardware import Preset, Status
from tracer.accumulators.spec.accumulator import ByOperands
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma, Rule, Schedule
from tracer.accumulators.spec.float_accumulator import FloatRounding, float_format
from tracer.accumulators.spec.operand_format import BLOCK_FORMATS, BLOCKS

_CHECKED: Status = "checked against hardware vectors"
_KHATTAK = "Khattak and Mikaitis, arXiv 2512.07004"
_SIMULATOR = "MMA-Sim, arXiv 2511.10909"
_FP8 = ("fp8-e4m3", "fp8-e5m2")
_NARROW = (*_FP8, "fp6-e2m3", "fp6-e3m2", "fp4-e2m1")
_GROUPED = ("mxfp4", "nvfp4")
"""Formats whose products are added in groups of 16 (mxf4, mxf4nvf4); others in none (mxf8f6f4)."""


def _tensor_cores(
    operands: tuple[str, ...], length: int, fraction: int, out: str = "fp32",
    least: int | None = None, schedule: Schedule = "chain",
) -> Mapping[str, BlockFma]:  # fmt: skip
    """Returns an accumulator for each format of operands; sums in fp16 are rounded to nearest."""
    return {
        name: BlockFma(
            length, fraction, float_format(out), FloatRounding("rne" if out == "fp16" else "rz"),
            float_format(name), schedule=schedule, least=least,
        )
        for name in operands
    }  # fmt: skip


def _scaled() -> Mapping[str, BlockFma]:
    """Returns Blackwell's accumulators for each format with scales of blocks."""
    rows = {}
    for name, form in BLOCK_FORMATS.items():
        if form.element is not None and name in _GROUPED:
            rows[name] = BlockFma(
                64, 35, operands=form.element, scaling=form.scaling, group=BLOCKS["nvfp4"]
            )
        elif form.element is not None:
            rows[name] = BlockFma(32, 25, operands=form.element, least=-133, scaling=form.scaling)
    return rows


NVIDIA: Mapping[str, Mapping[str, BlockFma]] = {
    "tc:v100": _tensor_cores(("fp16",), 4, 23),
    "tc:t4": _tensor_cores(("fp16",), 8, 24, least=-132),
    "tc:a100": {
        **_tensor_cores(("fp16", "bf16"), 8, 24, least=-132),
        **_tensor_cores(("tf32",), 4, 24, least=-132),
    },
    "tc:ada": {
        **_tensor_cores(("fp16", "bf16"), 8, 24, least=-132),
        **_tensor_cores(("tf32",), 4, 24, least=-132),
        **_tensor_cores(_FP8, 16, 13, "e8m13", -132),
    },
    "tc:h100": {
        **_tensor_cores(("fp16", "bf16"), 16, 25, least=-133),
        **_tensor_cores(("tf32",), 8, 25, least=-133),
        **_tensor_cores(_FP8, 32, 13, "e8m13", -133),
    },
    "tc:b200": {
        **_tensor_cores(("fp16", "bf16"), 16, 25, least=-133),
        **_tensor_cores(("tf32",), 8, 25, least=-133),
        **_tensor_cores(_NARROW, 32, 25, least=-133),
        **_scaled(),
    },
    "tc:rtx-blackwell": {
        **_tensor_cores(("fp16", "bf16"), 16, 25, least=-133),
        **_tensor_cores(("tf32",), 8, 25, least=-133),
        **_tensor_cores((*_FP8, "fp4-e2m1"), 32, 25, least=-133),
        **_scaled(),
    },
    "tc:hmma-fp8": _tensor_cores(_FP8, 16, 25, "fp32", -133, "split"),
    "tc:v100-fp16-sums": _tensor_cores(("fp16",), 4, 23, "fp16", -19),
    "tc:t4-fp16-sums": _tensor_cores(("fp16",), 8, 24, "fp16", -20),
    "tc:a100-fp16-sums": _tensor_cores(("fp16",), 8, 24, "fp16", -20),
    "tc:ada-fp16-sums": {
        **_tensor_cores(("fp16",), 8, 24, "fp16", -20),
        **_tensor_cores(_FP8, 16, 13, "fp16", -20),
    },
    "tc:h100-fp16-sums": {
        **_tensor_cores(("fp16",), 16, 25, "fp16", -21),
        **_tensor_cores(_FP8, 32, 13, "fp16", -21),
    },
    "tc:b200-fp16-sums": {
        **_tensor_cores(("fp16",), 16, 25, "fp16", -21),
        **_tensor_cores(_NARROW, 32, 25, "fp16", -21),
    },
    "tc:hmma-fp8-fp16-sums": _tensor_cores(_FP8, 16, 25, "fp16", -21, "split"),
}

_WHAT: Mapping[str, tuple[str, str, Status]] = {
    "tc:v100": ("Volta adds 4 products of fp16 at once, with 23 bits of fraction", _KHATTAK,
                _CHECKED),
    "tc:t4": ("Turing adds 8 products of fp16 at once, with 24 bits of fraction", _SIMULATOR,
              "modelled"),
    "tc:a100": ("Ampere adds 8 products at once (tf32: 4), with 24 bits of fraction", _KHATTAK,
                _CHECKED),
    "tc:ada": ("Ada adds as Ampere does, fp8 16 products at once with 13 bits of fraction",
               _KHATTAK, _CHECKED),
    "tc:h100": ("Hopper adds 16 products at once (tf32: 8) with 25 bits of fraction, fp8 by wgmma "
                "32 with 13", f"{_KHATTAK}; products of an H100 80GB HBM3", _CHECKED),
    "tc:b200": ("Blackwell adds 16 products at once (tf32: 8), narrow formats by tcgen05 32, with "
                "25 bits of fraction",
                f"{_KHATTAK}; fp8 and narrower: {_SIMULATOR}", _CHECKED),
    "tc:rtx-blackwell": ("Blackwell of RTX cards adds 16 products at once (tf32: 8, fp8: 32) with "
                         "25 bits of fraction", _SIMULATOR,
                         "modelled"),
    "tc:hmma-fp8": ("mma.sync of fp8 on Hopper and Blackwell adds 2 x 16 products by instructions "
                    "for fp16, then C", "results of H100, H200 and B200 in MATLAB-tensor-core",
                    _CHECKED),
}  # fmt: skip
"""What each device does, its source, and how it is checked."""
_GROUPS_DIFFER = (
    "Blocks of mxfp4 are those of mxf4, not of mxf8f6f4. A group of 16 that adds up to 0 has no "
    "exponent; in MMA-Sim it has that of its scales."
)
_UNCHECKED: Mapping[str, str] = {
    "tc:b200": "Formats of 8 bits and fewer are modelled: no results of tcgen05 with them are "
    f"public. {_GROUPS_DIFFER}",
    "tc:rtx-blackwell": _GROUPS_DIFFER,
    "tc:h100": "cuBLAS adds parts of long sums in fp32, and of fp8 without fast accumulation those "
    "of 128 products: `promote=128`.",
    "tc:b200-fp16-sums": "No results of tcgen05 with fp8 or narrower formats are public.",
    "tc:h100-fp16-sums": "No results of wgmma with fp8 and sums in fp16 are public.",
}
"""What the check of a device leaves out."""
_LEAVES_OUT = "A library may part k among blocks of threads, and add their sums."
_HALF_SUMS = "-fp16-sums"


def _nvidia(name: str) -> Preset:
    device = name.removesuffix(_HALF_SUMS)
    what, source, status = _WHAT[device]
    what += ", or of fp4 with scales 4 x 16 with 35" if "nvfp4" in NVIDIA[name] else ""
    end = "sums in fp16 to nearest" if name != device else "sums in fp32 towards 0"
    leaves_out = f"{_LEAVES_OUT} {_UNCHECKED.get(name, '')}".rstrip()
    sums = ByOperands(name, NVIDIA[name])
    return Preset(name, f"{what}; {end}.", source, status, leaves_out, sums)


def _matrix_cores(rule: Rule, *rows: tuple[int, tuple[str, ...]]) -> Mapping[str, BlockFma]:
    """Returns an accumulator for each format of operands: (length, operands)."""
    return {
        name: BlockFma(length, 24, SINGLE, FloatRounding("rne"), float_format(name), rule)
        for length, names in rows
        for name in names
    }


AMD: Mapping[str, Mapping[str, BlockFma]] = {
    "amd:mi100": _matrix_cores("exact", (4, ("fp16",)), (2, ("bf16",))),
    "amd:mi250": _matrix_cores("pairwise", (4, ("fp16", "bf16"))),
    "amd:mi300x": {
        **_matrix_cores("late", (8, ("fp16", "bf16")), (4, ("tf32",))),
        **_matrix_cores("odd-even", (16, ("fp8-e4m3fnuz", "fp8-e5m2fnuz"))),
    },
}
_AMD_SOURCE = (
    f"{_SIMULATOR}; 500 rows a format have the bits of MATLAB-tensor-core's models "
    "(b12b5a7, of MI300X 122c221), which are no results of cards"
)
_AMD_WHAT: Mapping[str, tuple[str, str]] = {
    "amd:mi100": ("CDNA1 adds 4 products of fp16 (bf16: 2) and C exactly, and rounds to fp32 once.",
                  "Where models differ, it adds exactly, and not in pairs."),
    "amd:mi250": ("CDNA2 adds 4 products in pairs in fp32, then C; subnormal numbers are 0.",
                  "The older instructions for bf16, of 2 products, are left out."),
    "amd:mi300x": ("CDNA3 truncates 8 products (tf32: 4, fp8: 16) at their greatest exponent, then "
                   "adds C.",
                   "Sums of even and odd k in fp8 are rounded down; one model truncates them."),
}  # fmt: skip
"""What each device does, and what the check leaves out."""

_PROMOTE = 128
"""Products of a tile: BLOCK_K of DeepGEMM's sm90_fp8_gemm_1d2d.cuh."""
_UNSCALED = BlockFma(
    32, 13, float_format("e8m13"), operands=float_format("fp8-e4m3"), least=-133, promote=_PROMOTE
)

PRESETS = (
    *(
        Preset(name, what, _AMD_SOURCE, "modelled", leaves_out, ByOperands(name, AMD[name]))
        for name, (what, leaves_out) in _AMD_WHAT.items()
    ),
    Preset(
        "deepgemm",
        "Hopper's wgmma adds 4 x 32 products of fp8 with 13 bits of fraction; such sums, times "
        "the scales of tiles, are added in fp32 to nearest.",
        "DeepGEMM, sm90_fp8_gemm_1d2d.cuh",
        "modelled",
        "A scaled sum is added in one rounding, as compilers fuse it by default. Two activations "
        "both have tiles of 1 x 128.",
        ByOperands(
            "deepgemm",
            {"fp8-e4m3(tiles)": replace(_UNSCALED, scaling="tiles"), "fp8-e4m3": _UNSCALED},
        ),
    ),
    *map(_nvidia, NVIDIA),
)
