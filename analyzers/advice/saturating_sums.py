"""Advise on 8-bit products whose sums may saturate on this processor."""

from analyzers.advice._evidence import Advice, Evidence, keys, named, share
from analyzers.views.text import plural
from tracer.records.trace import Kernel

_DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
_PRESET = "x86-maddubs"
"""The accumulator of such kernels: pairs of products in 16 bits, which saturate."""
_WEIGHTS = {"QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3, "ConvInteger": 1, "MatMulInteger": 1,
            "MatMulIntegerToFloat": 1}  # fmt: skip
"""Positions of the weights among the inputs."""


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes that saturate in the emulation, else on those of such types.

    The processor has AVX2 and no VNNI: its kernels of unsigned activations and signed weights add
    pairs of products with PMADDUBSW.
    """
    if "avx2" not in evidence.flags or evidence.flags & _DOT_PRODUCTS:
        return None
    rows = evidence.rows_of(k for k in evidence.run.kernels if _is_mixed(k))
    if rows.empty:
        return None
    time = share(rows["time_share"].sum())
    emulated = evidence.sums[evidence.sums["saturation_events"].fillna(0) > 0]
    if len(emulated):
        count = int(emulated["outputs_changed"].sum())
        text = (
            f"saturation: sums of {named(emulated)} saturate in pairs of 16 bits, as this "
            f"processor adds them; {plural(count, 'output')} differ"
        )
        figures = {"outputs_changed": float(count)}
        return Advice("saturating_sums", text, time, keys(emulated), figures, tune=("static_int8",))
    text = (
        f"saturation: {named(rows)} multiply unsigned by signed bytes, and this processor has no "
        f"VNNI: pairs of products may saturate at 16 bits. --accumulator {_PRESET} counts them"
    )
    return Advice("saturating_sums", text, time, keys(rows), {}, tune=("static_int8",))


def _is_mixed(kernel: Kernel) -> bool:
    """Returns whether a kernel multiplies uint8 activations by int8 weights."""
    position = _WEIGHTS.get(kernel.op_type)
    if position is None or len(kernel.input_types) <= position:
        return False
    first, weights = kernel.input_types[0], kernel.input_types[position]
    return (first.dtype, weights.dtype) == ("uint8", "int8")
