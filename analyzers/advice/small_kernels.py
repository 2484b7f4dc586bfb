"""Advise on kernels so small that most of their time is the overhead of a start."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, mean

_SHORT_US, _FAR, _SHARE, _SEVERAL = 10.0, 0.25, 0.25, 10


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if many short kernels far below the roof take much of the time."""
    rows = evidence.rows
    of_all = int(rows["calls"].sum())
    each = rows["time_us"] / rows["calls"]
    rows = rows[(each < _SHORT_US) & (rows["roof_fraction"] < _FAR)]
    share, count = float(rows["time_share"].sum()), int(rows["calls"].sum())
    if count < _SEVERAL or share < _SHARE:
        return None
    needed = mean(rows, "roof_fraction")
    text = (
        f"small kernels: {count:,} of {of_all:,} calls take less than {_SHORT_US:.0f} µs each and "
        f"{share:.0%} of the time in total. The work needs {needed:.1%} of it; the rest is the "
        "overhead of starting kernels. Use fewer, larger operators, or a larger batch"
    )
    figures = {"calls": count, "of_calls": of_all, "roof_fraction": needed}
    return Advice(
        "small_kernels", text, share, keys(rows), figures,
        tune=("threads", "optimization"), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip
