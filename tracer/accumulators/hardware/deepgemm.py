"""DeepGEMM: sums of fp8 on Hopper, promoted to fp32 after every 128 products."""

from dataclasses import replace

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.any_accumulator import ByOperands
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_format import float_format

_PROMOTE = 128
"""Products of a tile: BLOCK_K of sm90_fp8_gemm_1d2d.cuh."""
_UNSCALED = BlockFma(
    32, 13, float_format("e8m13"), "rz", float_format("fp8-e4m3"), least=-133, promote=_PROMOTE
)

PRESETS = (
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
            {
                "fp8-e4m3(tiles)": replace(_UNSCALED, scaling="tiles"),
                "fp8-e4m3": _UNSCALED,
            },
        ),
    ),
)  # fmt: skip
