"""Advise on 8-bit products whose sums may saturate on this processor."""

import pandas as pd

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named, share
from tracer.analyzers.views.text import plural
from tracer.records.trace import Kernel
from tracer.support import processors

_PRESET = "x86-maddubs"
"""The accumulator of such kernels: pairs of products in 16 bits, which saturate."""
_WEIGHTS = {"QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3, "ConvInteger": 1, "MatMulInteger": 1,
            "MatMulIntegerToFloat": 1}  # fmt: skip
"""Positions of the weights among the inputs."""


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes whose outputs differ in the emulation, else on those of such types.

    The processor has AVX2 and no VNNI: its kernels of bytes by signed weights add pairs of products
    with VPMADDUBSW. Nothing is said where the emulation counted such sums and none differ.
    """
    if not processors.saturates(evidence.flags):
        return None
    rows = evidence.rows_of(k for k in evidence.run.kernels if _is_mixed(k))
    emulated = evidence.sums[evidence.sums["accumulator"] == _PRESET]
    if len(emulated):
        return _emulated(emulated[emulated["outputs_changed"] > 0])
    if rows.empty:
        return None
    text = (
        f"saturation: {named(rows)} multiply bytes by signed bytes, and this processor has no "
        f"VNNI: pairs of products may saturate at 16 bits. --accumulator {_PRESET} counts them"
    )
    time = share(rows["time_share"].sum())
    return Advice("saturating_sums", text, time, keys(rows), {}, tune=("static_int8",))


def _emulated(rows: pd.DataFrame) -> Advice | None:
    """Returns advice on nodes whose outputs differ, as this processor adds them."""
    if rows.empty:
        return None
    rows = rows.sort_values("outputs_changed", ascending=False, kind="stable")
    count, of_all = int(rows["outputs_changed"].sum()), int(rows["outputs"].sum())
    text = (
        f"saturation: sums of {named(rows)} saturate in pairs of 16 bits, as this processor adds "
        f"them: {count:,} of {plural(of_all, 'output')} differ. Weights of 7 bits or unsigned ones "
        "do not: tracer quantize --reduce-range, or --weight-type uint8"
    )
    time, figures = share(rows["time_share"].sum()), {"outputs_changed": float(count)}
    return Advice("saturating_sums", text, time, keys(rows), figures, tune=("static_int8",))


def _is_mixed(kernel: Kernel) -> bool:
    """Returns whether a kernel multiplies bytes by int8 weights; int8 ones are made unsigned."""
    position = _WEIGHTS.get(kernel.op_type)
    if position is None or len(kernel.input_types) <= position:
        return False
    first, weights = kernel.input_types[0], kernel.input_types[position]
    return first.dtype in ("uint8", "int8") and weights.dtype == "int8"
