"""Whether onnxruntime adds 8-bit products on a processor without losing any."""

from __future__ import annotations

from collections.abc import Collection

from tracer.quantization.options import Options

_DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


def saturation_note(options: Options, cpu_flags: Collection[str]) -> str | None:
    """A warning for signed 8-bit weights on an x86 processor without VNNI; None where all is well.

    The AVX2 kernels add products in pairs that saturate at 16 bits (PMADDUBSW). onnxruntime's
    documentation advises to reduce the range of weights to 7 bits on such processors.
    """
    bytes_ = options.weight_type == "int8" and options.activation_type in ("uint8", "int8")
    if options.reduce_range or not bytes_:
        return None
    if "avx2" not in cpu_flags or not _DOT_PRODUCTS.isdisjoint(cpu_flags):
        return None
    return (
        "this processor has no VNNI: here onnxruntime may saturate sums of 8-bit products and be "
        "less accurate than the interpreter's figures; --reduce-range keeps weights in 7 bits"
    )
