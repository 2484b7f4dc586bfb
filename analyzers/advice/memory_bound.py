"""Advise on kernels that are limited by the bandwidth of main memory."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, mean, named
from tracer.analyzers.roofline import ABOVE, MEMORY

_NEAR, _SHARE = 0.5, 0.05
_PRODUCTS = ("Conv", "Gemm", "MatMul")
_FEWEST_BITS = 4
"""Bits of the narrowest weights that are tried."""


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if kernels reach half of the memory roof, and are not above it."""
    rows = evidence.sure
    rows = rows[(rows["bound"] == MEMORY) & rows["roof_fraction"].between(_NEAR, ABOVE)]
    share = float(rows["time_share"].sum())
    if evidence.peaks is None or share < _SHARE:
        return None
    rate, peak = mean(rows, "gbytes_per_s"), evidence.peaks.memory.rate / 1e9
    intensity = mean(rows, "gflops_per_s") / rate
    text = (
        f"memory-bound: {named(rows)} take {share:.0%} of the time and reach {rate:.3g} of the "
        f"{peak:.3g} GB/s of main memory, at {intensity:.2g} flop/B: only fewer bytes make them "
        "faster. Fuse them with a neighbour, or use smaller types"
    )
    figures = {"gbytes_per_s": rate, "peak_gbytes_per_s": peak, "intensity": intensity}
    products = rows["op_type"].isin(_PRODUCTS) & (rows["params"].fillna(0) > 0)
    tune, at_most = (
        (("weights_4bit", "static_int8"), evidence.at_most_by_bits(_FEWEST_BITS))
        if products.any()
        else (("optimization",), evidence.at_most_by_settings())
    )
    return Advice(
        "memory_bound", text, share, keys(rows), figures,
        tune=tune, at_most=at_most,
    )  # fmt: skip
