"""How QNNPACK, PyTorch's older library for phones, adds in 16 bits."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles
from tracer.accumulators.spec.register import Register

PRESETS = (
    Preset(
        name="qnnpack-acc16",
        what="All products are added in 16 bits, which wrap; their sum is then widened to 32.",
        source="QNNPACK, 4x8-neon_per_channel_16bitAcc.c",
        status="modelled",
        leaves_out="Zero points of weights, which the library subtracts before it multiplies.",
        accumulator=Accumulator(
            32, "wrap", Tiles((Level(None, Register(16, "wrap")),)), zero_points="after"
        ),
    ),
)
