"""Kernels so small that starting them is most of their time."""

from analyzers.advice._evidence import Advice, Evidence, keys, mean

_SHORT_US, _FAR, _SHARE, _SEVERAL = 10.0, 0.25, 0.25, 10


def rule(evidence: Evidence) -> Advice | None:
    """Many short kernels far from the roof take much of the time together."""
    rows = evidence.rows
    of_all = int(rows["calls"].sum())
    each = rows["time_us"] / rows["calls"]
    rows = rows[(each < _SHORT_US) & (rows["roof_fraction"] < _FAR)]
    share, count = float(rows["time_share"].sum()), int(rows["calls"].sum())
    if count < _SEVERAL or share < _SHARE:
        return None
    needed = mean(rows, "roof_fraction")
    text = (
        f"small kernels: {count:,} of {of_all:,} calls take less than {_SHORT_US:.0f} µs each, "
        f"{share:.0%} of the time together, of which their work needs {needed:.1%}: starting a "
        "kernel costs the rest. Fewer, larger operators or a larger batch share that cost"
    )
    figures = {"calls": count, "of_calls": of_all, "roof_fraction": needed}
    return Advice("small_kernels", text, share, keys(rows), figures)
