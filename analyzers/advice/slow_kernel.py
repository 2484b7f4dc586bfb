"""Advise on a long kernel that is far below the peaks of the machine."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys
from tracer.text import brief

_LONG_US, _FAR, _SHARE = 20.0, 0.25, 0.1


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice on the longest kernel that is far below its roof."""
    rows = evidence.sure
    each = rows["time_us"] / rows["calls"]
    rows = rows[(each >= _LONG_US) & (rows["roof_fraction"] < _FAR)]
    rows = rows[rows["time_share"] >= _SHARE].head(1)
    if rows.empty:
        return None
    row = rows.iloc[0]
    share, fraction, bound = float(row["time_share"]), float(row["roof_fraction"]), row["bound"]
    name = f"{brief(row['node'])} ({brief(row['op_type'])})"
    text = (
        f"far from the roof: {name} takes {share:.0%} of the time at {fraction:.1%} of the {bound} "
        f"roof ({row['gflops_per_s']:.3g} GFLOP/s, {row['gbytes_per_s']:.3g} GB/s): the kernel is "
        "the limit, not the machine. Try another form of the model with tracer compare"
    )
    figures = {name: float(row[name]) for name in ("roof_fraction", "gflops_per_s", "gbytes_per_s")}
    return Advice(
        "slow_kernel", text, share, keys(rows), figures,
        tune=("threads", "optimization", "layout"), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip
