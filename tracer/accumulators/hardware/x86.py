"""How matrix products of bytes add on x86 processors.

onnxruntime chooses by the processor: `x86-maddubs` with AVX2 and no VNNI, `x86-vnni` with it, for
uint8 activations and int8 weights; `x86-u8u8` for uint8 weights with AVX2. The instruction of
VNNI that it takes saturates at 32 bits. It never does so: onnxruntime adds blocks of some hundred
terms with it, and their sums wrap.
"""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles
from tracer.accumulators.spec.register import Register

_PAIR = Level(2, Register(16))

PRESETS = (
    Preset(
        name="x86-maddubs",
        what="Pairs of uint8 by int8 products saturate at 16 bits; pairs of pairs go to 32 bits.",
        source="VPMADDUBSW (Intel SDM 2B); onnxruntime, QgemmU8X8KernelAvx2.S",
        status="checked against another library",
        leaves_out="Convolutions pair kernel positions before channels; int8 inputs are shifted.",
        accumulator=Accumulator(32, "wrap", Tiles((_PAIR, Level(2))), zero_points="after"),
    ),
    Preset(
        name="x86-vnni",
        what="Four uint8 by int8 products are added to 32 bits in one step; the sum wraps.",
        source="VPDPBUSDS (Intel SDM 2C); onnxruntime, QgemmU8X8KernelAvx2.S",
        status="checked against another library",
        leaves_out="Int8 inputs are shifted.",
        accumulator=Accumulator(32, "wrap", Tiles((Level(4),)), zero_points="after"),
    ),
    Preset(
        name="x86-u8u8",
        what="Pairs of uint8 by uint8 products, widened to 16 bits, are added to 32 bits exactly.",
        source="VPMADDWD (Intel SDM 2B); onnxruntime, QgemmU8X8KernelAvx2.S",
        status="checked against another library",
        leaves_out="Processors with AVX-VNNI-INT8, whose own instruction onnxruntime takes.",
        accumulator=Accumulator(32, "wrap", Tiles((Level(2),)), zero_points="after"),
    ),
)
