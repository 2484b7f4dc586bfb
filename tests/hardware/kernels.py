"""Kernels of libraries that add products of bytes, as read in their sources: docs/hardware.md."""

from dataclasses import dataclass

EXACT = "32(overflow=wrap,zero_points=after)"
"""What many kernels are: sums of 32 bits that wrap, in any order."""


@dataclass(frozen=True)
class Library:
    """A library, the revision that was read, and what it does beside its sums."""

    name: str
    revision: str
    zero_points: str
    scales: str


@dataclass(frozen=True)
class Kernel:
    """A kernel's processors and files, how it adds, and the accumulator or preset of its sums.

    `order` is that of its additions in 32 bits where these are exact, as an accumulator has it.
    """

    library: Library
    processor: str
    files: str
    adds: str
    sums: str
    order: str = ""


_XNNPACK = Library(
    "XNNPACK", "75db3c0", "of activations: times the sum of the weights, in the bias",
    "floats, to nearest even; rndnu kernels of Arm: integers, half up",
)  # fmt: skip
_QNNPACK = Library(
    "QNNPACK", "7d2a4e9", "of weights: subtracted before; of activations: in the bias",
    "a multiplier of 32 bits and a rounding shift",
)  # fmt: skip
_ONEDNN = Library("oneDNN", "3f27bec", "after the sum", "floats")
_FBGEMM = Library(
    "FBGEMM", "71d6f8b", "after the sum, by sums of rows and columns", "floats, to nearest even"
)
_CMSIS = Library(
    "CMSIS-NN", "99f736a", "times the sum of the weights, before the bias",
    "a multiplier of 32 bits, doubled and rounded, then a rounding shift",
)  # fmt: skip
_GEMMLOWP = Library("gemmlowp", "16e8662", "after the sum, by sums of rows and columns",
                    "the caller's stages")  # fmt: skip
_RUY = Library("ruy", "2af8886", "after the sum, by sums of rows and columns",
               "a multiplier of 32 bits and a shift")  # fmt: skip

_WIDENED = "pairs of products, widened to 16 bits (VPMADDWD)"
_VNNI = "4 products in one step (VPDPBUSD)"
_DOT = "4 products in one step (SDOT, UDOT)"
_LANES = "single products, widened to 16 bits (SMLAL)"
_HALVES = "products 8 apart in 16 bits (SMULL, SMLAL, SADALP)"

KERNELS = (
    Kernel(_XNNPACK, "x86: SSE to AVX-512", "qs8-gemm/MRx8c8-avx2.c.in, MRx16c8-avx512skx.c.in",
           _WIDENED, EXACT, "tiles(2)"),
    Kernel(_XNNPACK, "x86 with VNNI", "qs8-gemm/MRx16c8-avx512vnni.c.in; adds 128 to int8",
           _VNNI, EXACT, "tiles(4)"),
    Kernel(_XNNPACK, "x86, weights of 2 and 4 bits", "intrinsics-polyfill.h",
           "pairs that do not reach 16 bits (VPMADDUBSW)", EXACT, "tiles(2:16,2)"),
    Kernel(_XNNPACK, "Arm", "qs8-gemm/neon-mlal-lane.c.in", _LANES, EXACT, "sequential"),
    Kernel(_XNNPACK, "Arm", "qs8-gemm/c2-neon-mull-shuffle.c.in, 1x8c8-aarch64-neon-mlal.S.in",
           _HALVES, "xnnpack-c2"),
    Kernel(_XNNPACK, "Arm with dot products", "qs8-gemm/c4-neondot.c.in, c8-neoni8mm.c.in",
           "4 or 8 products in one step", "arm-dot"),
    Kernel(_QNNPACK, "Arm, x86", "q8gemm/8x8-neon.c, 4x4c2-sse2.c",
           "single products or pairs, widened to 16 bits", EXACT, "tiles(2)"),
    Kernel(_ONEDNN, "x86: AVX2, AVX-512", "doc/advanced_topics/int8_computations.md",
           "pairs in 16 bits, which saturate (VPMADDUBSW)", "onednn-u8s8"),
    Kernel(_ONEDNN, "x86 with VNNI", "doc/advanced_topics/int8_computations.md", _VNNI, "x86-vnni"),
    Kernel(_FBGEMM, "x86: AVX2, AVX-512", "GenerateKernelU8S8S32ACC32.cc",
           "pairs in 16 bits, which saturate (VPMADDUBSW)", "fbgemm-acc32"),
    Kernel(_FBGEMM, "x86: AVX2, AVX-512", "GenerateKernelU8S8S32ACC16.cc",
           "sums in 16 bits, which saturate", "fbgemm-acc16"),
    Kernel(_FBGEMM, "x86 with VNNI", "GenerateKernelU8S8S32ACC32Avx512VNNI.cc", _VNNI, "x86-vnni"),
    Kernel(_CMSIS, "Arm with DSP, int8", "arm_nn_mat_mult_nt_t_s8.c",
           "pairs of products (SMLAD)", "cmsis-s8"),
    Kernel(_CMSIS, "Arm with MVE, int8", "arm_nn_mat_mult_nt_t_s8.c",
           "16 products in one step (VMLADAVA)", EXACT, "tiles(16)"),
    Kernel(_CMSIS, "int16 by int8", "arm_nn_mat_mult_nt_t_s16.c, arm_nn_vec_mat_mult_t_s16.c",
           "512 products in 32 bits, further ones in 64", "cmsis-s16"),
    Kernel(_GEMMLOWP, "Arm", "kernel_neon.h: Kernel12x8Depth2", _LANES, EXACT, "sequential"),
    Kernel(_GEMMLOWP, "Arm, no weight -128", "kernel_neon.h: GEMM_Int8Operands_LhsNonzero",
           _HALVES, "gemmlowp-2in16"),
    Kernel(_GEMMLOWP, "x86: SSE4, AVX2", "kernel_sse.h, kernel_avx.h", _WIDENED, EXACT, "tiles(2)"),
    Kernel(_RUY, "Arm", "kernel_arm64.cc, kernel_arm32.cc", _HALVES, "gemmlowp-2in16"),
    Kernel(_RUY, "Arm with dot products", "kernel_arm64.cc", _DOT, "arm-dot"),
    Kernel(_RUY, "x86: AVX to AVX-512", "kernel_avx.cc, kernel_avx2_fma.cc, kernel_avx512.cc",
           _WIDENED, EXACT, "tiles(2)"),
)  # fmt: skip
