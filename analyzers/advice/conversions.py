"""Kernels that do nothing but change the type of numbers."""

from analyzers.advice._evidence import Advice, Evidence, keys, named
from tracer.graph.quantized import CONVERSIONS

_CONVERSIONS = CONVERSIONS | {"Cast"}
_SHARE = 0.05


def rule(evidence: Evidence) -> Advice | None:
    """Conversions with kernels of their own take a measurable time."""
    rows = evidence.rows[evidence.rows["op_type"].isin(_CONVERSIONS)]
    share = float(rows["time_share"].sum())
    if share < _SHARE:
        return None
    time = float(rows["time_us"].sum())
    text = (
        f"conversions: {named(rows)} take {share:.1%} of the time ({time:.3g} µs) to change types "
        "between kernels; nodes next to each other in one type need none"
    )
    return Advice("conversions", text, share, keys(rows), {"time_us": time})
