"""Sums of products of bytes, as integer instructions and libraries of processors add them."""

from dataclasses import replace

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec import Register
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.nests import positionwise
from tracer.accumulators.spec.orders import Level, Order, Tiles, named

_FBGEMM_TERMS = 256
"""Terms of a block (KCB in PackingTraits-inl.h), after which FBGEMM spills its 16 bits."""
_SATURATING, _WRAPPING = Register(16), Register(16, "wrap")
_EIGHT_APART = Tiles((Level(2, _WRAPPING, stride=8), Level(2)))
_EXACT = Accumulator(32, "wrap", zero_points="after")


def _wrapping(order: Order) -> Accumulator:
    """Returns the accumulator of bytes as stored, in 32 bits that wrap."""
    return replace(_EXACT, order=order)


PRESETS = (
    # Arm processors with dot products of bytes
    Preset(
        name="arm-dot",
        what="Four products of bytes are added to 32 bits in one step, which wraps.",
        source="SDOT, UDOT (Arm Architecture Reference Manual)",
        status="modelled",
        leaves_out="The order in which a library visits blocks of terms, which changes no sum.",
        accumulator=_wrapping(Tiles((Level(4),))),
    ),
    Preset(
        name="arm-i8mm",
        what="Eight products of bytes are added to 32 bits in one step, which wraps.",
        source="SMMLA, UMMLA, USMMLA (Arm Architecture Reference Manual)",
        status="modelled",
        leaves_out="The order in which a library visits blocks of terms, which changes no sum.",
        accumulator=_wrapping(Tiles((Level(8),))),
    ),
    # CMSIS-NN, on Arm's microcontrollers
    Preset(
        name="cmsis-s8",
        what="Pairs of int8 products are added to 32 bits, which wrap.",
        source="CMSIS-NN 99f736a, arm_nn_mat_mult_nt_t_s8.c (SMLAD)",
        status="modelled",
        leaves_out="The order of lanes with MVE, which changes no sum.",
        accumulator=Accumulator(32, "wrap", Tiles((Level(2),))),
    ),
    Preset(
        name="cmsis-s16",
        what="Products of int16 and int8 are added in 64 bits.",
        source="CMSIS-NN 99f736a, arm_nn_mat_mult_nt_t_s16.c",
        status="modelled",
        leaves_out="Biases of 32 bits, with which sums have 32 bits and wrap; the multiplier of 16 "
        "bits that scales the sum afterwards.",
        accumulator=Accumulator(64, "wrap"),
    ),
    # FBGEMM, the library of PyTorch's quantised models on x86
    Preset(
        name="fbgemm-acc16",
        what="Pairs of uint8 by int8 products, and their sums, saturate at 16 bits; every 256 "
        "terms these are spilled to 32 bits.",
        source="FBGEMM 71d6f8b, GenerateKernelU8S8S32ACC16.cc and matmul_u8i8acc16_ref",
        status="modelled",
        leaves_out="Outlier weights, which the library may take out and add in 32 bits; processors "
        "with VNNI, on which it adds in 32 bits.",
        accumulator=_wrapping(
            positionwise(Tiles((Level(2, _SATURATING), Level(_FBGEMM_TERMS // 2, _SATURATING))))
        ),
    ),
    Preset(
        name="fbgemm-acc32",
        what="Pairs of uint8 by int8 products, of neighbouring channels and then positions, "
        "saturate at 16 bits, then go to 32 bits, which wrap; depthwise too.",
        source="FBGEMM 71d6f8b, GenerateKernelU8S8S32ACC32.cc (VPMADDUBSW); revealed from torch "
        "2.13 on AVX-512, engine fbgemm or x86",
        status="checked against another library",
        leaves_out="Processors with VNNI, whose sums are those of `x86-vnni`.",
        accumulator=_wrapping(positionwise(Tiles((Level(2, _SATURATING),)))),
    ),
    # gemmlowp, and ruy after it, on Arm processors without dot products
    Preset(
        name="gemmlowp-2in16",
        what="Int8 products 8 apart are added in 16 bits, which wrap; neighbours then go to 32 "
        "bits.",
        source="gemmlowp 16e8662, kernel_neon.h; ruy 2af8886, kernel_arm64.cc and kernel_arm32.cc "
        "(SMULL, SMLAL, SADALP)",
        status="modelled",
        leaves_out="The shift of uint8 operands to int8; pairs are exact where no weight is -128.",
        accumulator=_wrapping(positionwise(_EIGHT_APART)),
    ),
    # onnxruntime, for packed weights and activations rounded to 8 bits
    Preset(
        name="mlas-nbits-int8",
        what="In a block of weights, four products are added to 32 bits in one step; blocks are "
        "scaled and added in float32.",
        source="onnxruntime, MLAS SQNBitGemm CompInt8 (MatMulNBits, accuracy level 4)",
        status="checked against another library",
        leaves_out="The order in which blocks are added, which differs with the processor.",
        accumulator=Accumulator(32, "wrap", Tiles((Level(4),))),
    ),
    # oneDNN, another library of PyTorch on x86
    Preset(
        name="onednn-u8s8",
        what="Pairs of uint8 by int8 products, of neighbouring channels at one position, saturate "
        "at 16 bits, then go to 32 bits, which wrap. Depthwise convolutions are exact.",
        source="oneDNN 3f27bec, int8_computations.md (VPMADDUBSW); revealed from torch 2.13 on "
        "AVX-512 and AVX2, engine onednn",
        status="checked against another library",
        leaves_out="Int8 activations, to which it adds 128, halving the weights of convolutions; "
        "processors with VNNI, whose sums are those of `x86-vnni`.",
        accumulator=_wrapping(named("nest(kz,ky,kx:parallel,ic,tiles(2:16))")),
        instead={"depthwise": _EXACT},
    ),
    # QNNPACK, PyTorch's older library for phones
    Preset(
        name="qnnpack-acc16",
        what="All products are added in 16 bits, which wrap; their sum is then widened to 32.",
        source="QNNPACK, 4x8-neon_per_channel_16bitAcc.c",
        status="modelled",
        leaves_out="Zero points of weights, which the library subtracts before it multiplies; its "
        "other kernels, which add in 32 bits.",
        accumulator=_wrapping(Tiles((Level(None, _WRAPPING),))),
    ),
    # onnxruntime on x86 processors: `x86-maddubs` with AVX2 and no VNNI, `x86-vnni` with it, for
    # uint8 activations and int8 weights; `x86-u8u8` for uint8 weights with AVX2. The instruction of
    # VNNI that it takes saturates at 32 bits. It never does so: onnxruntime adds blocks of some
    # hundred terms with it, and their sums wrap.
    Preset(
        name="x86-maddubs",
        what="Pairs of uint8 by int8 products, of neighbouring channels and then positions, "
        "saturate at 16 bits; pairs of pairs go to 32 bits. ConvInteger, depthwise convolutions "
        "and other types are exact.",
        source="VPMADDUBSW (Intel SDM 2B); revealed from onnxruntime's kernels for AVX2 and "
        "AVX-512",
        status="checked against another library",
        leaves_out="Int8 activations of qdq graphs, which onnxruntime makes uint8; products that "
        "it does not fuse, which are sums of floats.",
        lifts_int8=True,
        accumulator=_wrapping(positionwise(Tiles((Level(2, _SATURATING), Level(2))))),
        instead=dict.fromkeys(
            ("ConvInteger", "depthwise", "int8 activations", "uint8 weights"), _EXACT
        ),
    ),
    Preset(
        name="x86-vnni",
        what="Four uint8 by int8 products are added to 32 bits in one step; the sum wraps.",
        source="VPDPBUSDS (Intel SDM 2C); onnxruntime, QgemmU8X8KernelAvx2.S",
        status="checked against another library",
        leaves_out="Int8 inputs are shifted.",
        accumulator=_wrapping(Tiles((Level(4),))),
    ),
    Preset(
        name="x86-u8u8",
        what="Pairs of uint8 by uint8 products, widened to 16 bits, are added to 32 bits exactly.",
        source="VPMADDWD (Intel SDM 2B); onnxruntime, QgemmU8X8KernelAvx2.S",
        status="checked against another library",
        leaves_out="Processors with AVX-VNNI-INT8, whose own instruction onnxruntime takes.",
        accumulator=_wrapping(Tiles((Level(2),))),
    ),
    # XNNPACK, on Arm processors without dot products
    Preset(
        name="xnnpack-c2",
        what="Products 8 apart, of channels at one position, are added in 16 bits, which wrap; "
        "neighbours then go to 32 bits.",
        source="XNNPACK 75db3c0, qs8-gemm c2-neon-mull-shuffle.c.in and "
        "1x8c8-aarch64-neon-mlal.S.in (SMULL, SMLAL, SADALP)",
        status="modelled",
        leaves_out="Kernels named mlal-lane, and processors with dot products of bytes: both are "
        "exact, and so are pairs where no weight is -128.",
        accumulator=_wrapping(named("nest(kz,ky,kx:parallel,ic,tiles(2x8:16:wrap,2))")),
    ),
)
