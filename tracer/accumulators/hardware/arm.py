"""How Arm processors with dot products of bytes add."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles

PRESETS = (
    Preset(
        name="arm-dot",
        what="Four products of bytes are added to 32 bits in one step, which wraps.",
        source="SDOT, UDOT (Arm Architecture Reference Manual)",
        status="modelled",
        leaves_out="The order in which a library visits blocks of terms, which changes no sum.",
        accumulator=Accumulator(32, "wrap", Tiles((Level(4),)), zero_points="after"),
    ),
    Preset(
        name="arm-i8mm",
        what="Eight products of bytes are added to 32 bits in one step, which wraps.",
        source="SMMLA, UMMLA, USMMLA (Arm Architecture Reference Manual)",
        status="modelled",
        leaves_out="The order in which a library visits blocks of terms, which changes no sum.",
        accumulator=Accumulator(32, "wrap", Tiles((Level(8),)), zero_points="after"),
    ),
)
