"""How x86 processors add products of bytes."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.maddubs import Maddubs

PRESETS = (
    Preset(
        name="x86-maddubs",
        what="Pairs of uint8 by int8 products saturate at 16 bits, then go to 32 bits.",
        source="VPMADDUBSW (Intel SDM 2B); onnxruntime, QgemmU8X8KernelAvx2.S",
        status="checked against another library",
        leaves_out="Convolutions pair kernel positions before channels; int8 inputs are shifted.",
        accumulator=Accumulator(32, "wrap", Maddubs(), zero_points="after"),
    ),
)
