"""Advise on products with packed weights whose kernels may not round activations to 8 bits."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named, us

_OPERATOR = "MatMulNBits"
_WIDEST = 8 * 8
"""Bit operations of a multiplication of integers: activations of 8 bits, weights of 8 or fewer."""
_SHARE = 0.05


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if MatMulNBits multiplies floats, as it does below accuracy level 4."""
    rows = evidence.rows_of(evidence.kernels_of(_OPERATOR))
    rows = rows[(rows["bops"] > _WIDEST * rows["macs"]).fillna(False)]
    share = float(rows["time_share"].sum())
    if share < _SHARE:
        return None
    time, macs = float(rows["time_us"].sum()), int(rows["macs"].sum())
    verb = "takes" if len(rows) == 1 else "take"
    text = (
        f"packed weights in floats: {named(rows)} {verb} {share:.0%} of the time ({us(time)} µs); "
        "accuracy_level = 4 lets MatMulNBits round activations to 8 bits and multiply integers. "
        "Check the outputs with tracer compare"
    )
    return Advice("unrounded_activations", text, share, keys(rows), {"time_us": time, "macs": macs})
