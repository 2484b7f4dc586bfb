"""Kernels that do their arithmetic about as fast as the machine can."""

from analyzers.advice._evidence import Advice, Evidence, keys, mean, named
from analyzers.roofline import COMPUTE, INT8, arithmetic

_NEAR, _SHARE = 0.6, 0.3
_ABOVE = 1.1
"""A little above, for a peak is as uncertain as what is compared; further, it is no roof."""
_WORTHWHILE = 1.3
"""How much faster 8-bit arithmetic has to be for a mention."""


def rule(evidence: Evidence) -> Advice | None:
    """Much of the time is near the arithmetic roof: no better kernel, only less work helps."""
    peaks, rows = evidence.peaks, evidence.sure
    rows = rows[(rows["bound"] == COMPUTE) & rows["roof_fraction"].between(_NEAR, _ABOVE)]
    share = float(rows["time_share"].sum())
    if peaks is None or share < _SHARE:
        return None
    fraction, rate = mean(rows, "roof_fraction"), mean(rows, "gflops_per_s")
    figures = {"roof_fraction": fraction, "gflops_per_s": rate}
    text = (
        f"compute-bound: {named(rows)} take {share:.0%} of the time at {fraction:.0%} of what the "
        f"machine can compute ({rate:.3g} GFLOP/s): only less work makes them faster"
    )
    gain = peaks.int8.rate / peaks.float32.rate if peaks.int8 else 0.0
    if gain >= _WORTHWHILE and not any(arithmetic(k) == INT8 for k in evidence.run.kernels):
        text += f", or 8-bit arithmetic, whose peak is {gain:.1f} times as high here"
        figures["int8_peak_ratio"] = gain
    return Advice("compute_bound", text, share, keys(rows), figures)
