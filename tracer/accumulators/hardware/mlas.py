"""How onnxruntime adds products of packed weights and activations rounded to 8 bits."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles

PRESETS = (
    Preset(
        name="mlas-nbits-int8",
        what="In a block of weights, four products are added to 32 bits in one step; blocks are "
        "scaled and added in float32.",
        source="onnxruntime, MLAS SQNBitGemm CompInt8 (MatMulNBits, accuracy level 4)",
        status="checked against another library",
        leaves_out="The order in which blocks are added, which differs with the processor.",
        accumulator=Accumulator(32, "wrap", Tiles((Level(4),))),
    ),
)
