"""Advise on kernels that only convert types."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named, us
from tracer.graph.operators import CONVERSIONS

_CONVERSIONS = CONVERSIONS | {"Cast"}
_SHARE = 0.05


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if separate conversions take a measurable time."""
    rows = evidence.rows[evidence.rows["op_type"].isin(_CONVERSIONS)]
    rows = rows[rows["index"].notna()]  # of casts that the runtime inserted, see inserted_casts
    share = float(rows["time_share"].sum())
    if share < _SHARE:
        return None
    time = float(rows["time_us"].sum())
    text = (
        f"conversions: {named(rows)} take {share:.1%} of the time ({us(time)} µs); adjacent nodes "
        "of one type need no conversion"
    )
    return Advice("conversions", text, share, keys(rows), {"time_us": time})
