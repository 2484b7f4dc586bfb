"""Warns where onnxruntime's 8-bit kernels saturate on this processor."""

from collections.abc import Collection

from tracer.quantization.options import QuantizationOptions
from tracer.support import processors


def saturation_note(options: QuantizationOptions, cpu_flags: Collection[str]) -> str | None:
    """Returns a warning for signed 8-bit weights on an x86 processor without VNNI, else None.

    The AVX2 kernels add pairs of products and saturate at 16 bits (PMADDUBSW). onnxruntime's
    documentation advises weights of 7 bits on such processors.
    """
    bytes_ = options.weight_type == "int8" and options.activation_type in ("uint8", "int8")
    if options.reduce_range or not bytes_:
        return None
    if not processors.saturates(cpu_flags):
        return None
    return (
        "this processor has no VNNI: onnxruntime may saturate sums of 8-bit products here, and be "
        "less accurate than the interpreter; --reduce-range keeps weights in 7 bits"
    )
