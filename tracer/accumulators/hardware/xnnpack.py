"""How XNNPACK adds products of int8 on Arm processors without dot products."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles
from tracer.accumulators.spec.register import Register

PRESETS = (
    Preset(
        name="xnnpack-c2",
        what="Products 8 apart are added in 16 bits, which wrap; neighbours then go to 32 bits.",
        source="XNNPACK, qs8-gemm c2-neon-mull-dup.c.in (MLAL)",
        status="modelled",
        leaves_out="Layouts c4, c8 and c16, and processors with dot products of bytes.",
        accumulator=Accumulator(
            32,
            "wrap",
            Tiles((Level(2, Register(16, "wrap"), stride=8), Level(2))),
            zero_points="after",
        ),
    ),
)
