"""Block multiply-adds of NVIDIA's tensor cores, by card and by format of the operands.

Lengths, bits and least exponents are those that Khattak and Mikaitis (arXiv 2512.07004) and MMA-Sim
(arXiv 2511.10909) found by tests of the cards. A preset is the instruction: a library may part k
among blocks of threads, and add their sums.
"""

from collections.abc import Mapping

from tracer.accumulators.hardware import Preset, Status
from tracer.accumulators.spec.any_accumulator import ByOperands
from tracer.accumulators.spec.block_fma import BlockFma, Schedule
from tracer.accumulators.spec.float_format import float_format
from tracer.accumulators.spec.operand_format import BLOCK_FORMATS, BLOCKS

_CHECKED: Status = "checked against hardware vectors"
_TESTS = "Khattak and Mikaitis, arXiv 2512.07004"
_SIMULATOR = "MMA-Sim, arXiv 2511.10909"
_LEAVES_OUT = "A library may part k among blocks of threads, and add their sums."
_FP8 = ("fp8-e4m3", "fp8-e5m2")
_NARROW = (*_FP8, "fp6-e2m3", "fp6-e3m2", "fp4-e2m1")


def _rows(
    operands: tuple[str, ...], length: int, fraction: int, out: str = "fp32",
    least: int | None = None, schedule: Schedule = "chain",
) -> Mapping[str, BlockFma]:  # fmt: skip
    """Returns an accumulator for each format of operands; sums in fp16 are rounded to nearest."""
    return {
        name: BlockFma(
            length, fraction, float_format(out), "rne" if out == "fp16" else "rz",
            float_format(name), schedule=schedule, least=least,
        )
        for name in operands
    }  # fmt: skip


_GROUPED = ("mxfp4", "nvfp4")
"""Formats whose products are added in groups of 16 (mxf4, mxf4nvf4); others in none (mxf8f6f4)."""


def _scaled_rows() -> Mapping[str, BlockFma]:
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


SUMS: Mapping[str, Mapping[str, BlockFma]] = {
    "tc:v100": _rows(("fp16",), 4, 23),
    "tc:t4": _rows(("fp16",), 8, 24, least=-132),
    "tc:a100": {
        **_rows(("fp16", "bf16"), 8, 24, least=-132),
        **_rows(("tf32",), 4, 24, least=-132),
    },
    "tc:ada": {
        **_rows(("fp16", "bf16"), 8, 24, least=-132),
        **_rows(("tf32",), 4, 24, least=-132),
        **_rows(_FP8, 16, 13, "e8m13", -132),
    },
    "tc:h100": {
        **_rows(("fp16", "bf16"), 16, 25, least=-133),
        **_rows(("tf32",), 8, 25, least=-133),
        **_rows(_FP8, 32, 13, "e8m13", -133),
    },
    "tc:b200": {
        **_rows(("fp16", "bf16"), 16, 25, least=-133),
        **_rows(("tf32",), 8, 25, least=-133),
        **_rows(_NARROW, 32, 25, least=-133),
        **_scaled_rows(),
    },
    "tc:rtx-blackwell": {
        **_rows(("fp16", "bf16"), 16, 25, least=-133),
        **_rows(("tf32",), 8, 25, least=-133),
        **_rows((*_FP8, "fp4-e2m1"), 32, 25, least=-133),
        **_scaled_rows(),
    },
    "tc:hmma-fp8": _rows(_FP8, 16, 25, "fp32", -133, "split"),
    "tc:v100-fp16-sums": _rows(("fp16",), 4, 23, "fp16", -19),
    "tc:t4-fp16-sums": _rows(("fp16",), 8, 24, "fp16", -20),
    "tc:a100-fp16-sums": _rows(("fp16",), 8, 24, "fp16", -20),
    "tc:ada-fp16-sums": {
        **_rows(("fp16",), 8, 24, "fp16", -20),
        **_rows(_FP8, 16, 13, "fp16", -20),
    },
    "tc:h100-fp16-sums": {
        **_rows(("fp16",), 16, 25, "fp16", -21),
        **_rows(_FP8, 32, 13, "fp16", -21),
    },
    "tc:b200-fp16-sums": {
        **_rows(("fp16",), 16, 25, "fp16", -21),
        **_rows(_NARROW, 32, 25, "fp16", -21),
    },
    "tc:hmma-fp8-fp16-sums": _rows(_FP8, 16, 25, "fp16", -21, "split"),
}


_WHAT: Mapping[str, tuple[str, str, Status]] = {
    "tc:v100": ("Volta adds 4 products of fp16 at once, with 23 bits of fraction", _TESTS,
                _CHECKED),
    "tc:t4": ("Turing adds 8 products of fp16 at once, with 24 bits of fraction", _SIMULATOR,
              "modelled"),
    "tc:a100": ("Ampere adds 8 products at once (tf32: 4), with 24 bits of fraction", _TESTS,
                _CHECKED),
    "tc:ada": ("Ada adds as Ampere does, fp8 16 products at once with 13 bits of fraction", _TESTS,
               _CHECKED),
    "tc:h100": ("Hopper adds 16 products at once (tf32: 8) with 25 bits of fraction, fp8 by wgmma "
                "32 with 13", _TESTS, _CHECKED),
    "tc:b200": ("Blackwell adds 16 products at once (tf32: 8), narrow formats by tcgen05 32, with "
                "25 bits of fraction",
                f"{_TESTS}; fp8 and narrower: {_SIMULATOR}", _CHECKED),
    "tc:rtx-blackwell": ("Blackwell of RTX cards adds 16 products at once (tf32: 8, fp8: 32) with "
                         "25 bits of fraction", _SIMULATOR,
                         "modelled"),
    "tc:hmma-fp8": ("mma.sync of fp8 on Hopper and Blackwell adds 2 x 16 products by instructions "
                    "for fp16, then C", "results of H100, H200 and B200 in MATLAB-tensor-core",
                    _CHECKED),
}  # fmt: skip
"""What each device does, its source, and how it is checked."""
_OF_GROUPS = (
    "Blocks of mxfp4 are those of mxf4, not of mxf8f6f4. A group of 16 that adds up to 0 has no "
    "exponent; in MMA-Sim it has that of its scales."
)
_UNCHECKED: Mapping[str, str] = {
    "tc:b200": "Formats of 8 bits and fewer are modelled: no results of tcgen05 with them are "
    f"public. {_OF_GROUPS}",
    "tc:rtx-blackwell": _OF_GROUPS,
    "tc:b200-fp16-sums": "No results of tcgen05 with fp8 or narrower formats are public.",
    "tc:h100-fp16-sums": "No results of wgmma with fp8 and sums in fp16 are public.",
}
"""What the check of a device leaves out."""
_HALF_SUMS = "-fp16-sums"
_SCALES = ", or of fp4 with scales 4 x 16 with 35"


def _preset(name: str) -> Preset:
    device = name.removesuffix(_HALF_SUMS)
    what, source, status = _WHAT[device]
    what += _SCALES * ("nvfp4" in SUMS[name])
    end = "sums in fp16 to nearest" if name != device else "sums in fp32 towards 0"
    leaves_out = " ".join([_LEAVES_OUT, *filter(None, [_UNCHECKED.get(name)])])
    return Preset(name, f"{what}; {end}.", source, status, leaves_out, ByOperands(name, SUMS[name]))


PRESETS = tuple(map(_preset, SUMS))
