"""How FBGEMM, the library of PyTorch's quantised models on x86, adds in 16 bits."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles
from tracer.accumulators.spec.register import Register

_TERMS = 256
"""Terms of a block (KCB in PackingTraits-inl.h), after which the 16 bits are spilled."""
_NARROW = Register(16)

PRESETS = (
    Preset(
        name="fbgemm-acc16",
        what="Pairs of uint8 by int8 products, and their sums, saturate at 16 bits; every 256 "
        "terms these are spilled to 32 bits.",
        source="FBGEMM, GenerateKernelU8S8S32ACC16.cc and matmul_u8i8acc16_ref",
        status="modelled",
        leaves_out="Outlier weights, which the library may take out and add in 32 bits.",
        accumulator=Accumulator(
            32,
            "wrap",
            Tiles((Level(2, _NARROW), Level(_TERMS // 2, _NARROW))),
            zero_points="after",
        ),
    ),
)
