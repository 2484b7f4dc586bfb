"""How CMSIS-NN adds on Arm's microcontrollers."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles

PRESETS = (
    Preset(
        name="cmsis-s8",
        what="Pairs of int8 products are added to 32 bits, which wrap.",
        source="CMSIS-NN, arm_nn_mat_mult_nt_t_s8.c (SMLAD)",
        status="modelled",
        leaves_out="The order of lanes with MVE, which changes no sum.",
        accumulator=Accumulator(32, "wrap", Tiles((Level(2),))),
    ),
    Preset(
        name="cmsis-s16",
        what="Products of int16 and int8 are added in 64 bits.",
        source="CMSIS-NN, arm_convolve_s16.c",
        status="modelled",
        leaves_out="The multiplier of 16 bits that scales the sum afterwards.",
        accumulator=Accumulator(64, "wrap"),
    ),
)
