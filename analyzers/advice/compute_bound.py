"""Advise on kernels that compute nearly at the peak of the machine."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, mean, named
from tracer.analyzers.roofline import ABOVE, COMPUTE, INT8, arithmetic

_NEAR, _SHARE, _BITS = 0.6, 0.3, 8
_WORTHWHILE = 1.3
"""Least ratio of the int8 peak to the float32 peak that is worth a mention."""


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if much of the time is spent near the compute roof."""
    peaks, rows = evidence.peaks, evidence.sure
    rows = rows[(rows["bound"] == COMPUTE) & rows["roof_fraction"].between(_NEAR, ABOVE)]
    share = float(rows["time_share"].sum())
    if peaks is None or share < _SHARE:
        return None
    fraction, rate = mean(rows, "roof_fraction"), mean(rows, "gflops_per_s")
    figures = {"roof_fraction": fraction, "gflops_per_s": rate}
    text = (
        f"compute-bound: {named(rows)} take {share:.0%} of the time at {fraction:.0%} of the peak "
        f"({rate:.3g} GFLOP/s): only less work makes them faster"
    )
    tune: tuple[str, ...] = ("threads",)
    at_most = evidence.at_most_by_settings()
    gain = peaks.int8.rate / peaks.float32.rate if peaks.int8 else 0.0
    if gain >= _WORTHWHILE and not any(arithmetic(k) == INT8 for k in evidence.run.kernels):
        text += f", or 8-bit arithmetic (its peak is {gain:.1f} times as high here)"
        figures["int8_peak_ratio"] = gain
        tune, at_most = ("static_int8",), evidence.at_most_by_bits(_BITS)
    return Advice(
        "compute_bound", text, share, keys(rows), figures,
        tune=tune, at_most=at_most,
    )  # fmt: skip
