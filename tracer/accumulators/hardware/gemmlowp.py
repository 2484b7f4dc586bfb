"""How gemmlowp, and ruy after it, add products of int8 on Arm processors without dot products."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles
from tracer.accumulators.spec.register import Register

PRESETS = (
    Preset(
        name="gemmlowp-2in16",
        what="Two int8 products are added in 16 bits, which wrap, then go to 32 bits.",
        source="gemmlowp, kernel_neon.h (SMULL, SMLAL, SADALP)",
        status="modelled",
        leaves_out="The shift of uint8 operands to int8; pairs are exact where no weight is -128.",
        accumulator=Accumulator(
            32, "wrap", Tiles((Level(2, Register(16, "wrap")),)), zero_points="after"
        ),
    ),
)
