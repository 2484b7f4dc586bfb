"""A long kernel that neither arithmetic nor memory explains."""

from analyzers.advice._evidence import Advice, Evidence, keys
from analyzers.views.text import printable

_LONG_US, _FAR, _SHARE = 20.0, 0.25, 0.1


def rule(evidence: Evidence) -> Advice | None:
    """The longest kernel that is far below its roof."""
    rows = evidence.sure
    each = rows["time_us"] / rows["calls"]
    rows = rows[(each >= _LONG_US) & (rows["roof_fraction"] < _FAR)]
    rows = rows[rows["time_share"] >= _SHARE].head(1)
    if rows.empty:
        return None
    row = rows.iloc[0]
    share, fraction, bound = float(row["time_share"]), float(row["roof_fraction"]), row["bound"]
    name = printable(f"{row['node']} ({row['op_type']})")
    text = (
        f"far from the roof: {name} takes "
        f"{share:.0%} of the time at {fraction:.1%} of the {bound} roof ({row['gflops_per_s']:.3g} "
        f"GFLOP/s, {row['gbytes_per_s']:.3g} GB/s): its kernel is the limit, not the machine; "
        "the same in another form may be faster, which tracer compare tells"
    )
    figures = {name: float(row[name]) for name in ("roof_fraction", "gflops_per_s", "gbytes_per_s")}
    return Advice("slow_kernel", text, share, keys(rows), figures)
