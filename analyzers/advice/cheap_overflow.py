"""Advise on nodes that overflow although wider accumulators would cost next to nothing."""

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, named, percentage, share

_SHARE = 0.05
"""The energy of a sum is at most quadratic in the width of its accumulator. Four more bits than 16
then add half of a node's energy: of this share, less than 3 % of the whole."""


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice if nodes with little energy in total overflow for want of width."""
    rows = evidence.sums
    short = rows["bits_observed"] > rows["bits"]  # not for pairs that saturate at any width
    rows = rows[(rows["overflow_outputs"] > 0) & short.fillna(False)]
    rows = rows.sort_values("overflow_outputs", ascending=False, kind="stable")
    rows = rows[rows["energy_share"].sort_values().cumsum().reindex(rows.index) <= _SHARE]
    if rows.empty:
        return None
    energy, time = float(rows["energy_share"].sum()), share(rows["time_share"].sum())
    sums = int(rows["overflow_outputs"].sum())
    needed = int(rows["bits_observed"].max())
    verbs = ("overflows", "takes") if len(rows) == 1 else ("overflow", "take")
    text = (
        f"cheap to widen: {named(rows)} {verbs[0]} in {sums:,} sums and {verbs[1]} only "
        f"{percentage(energy)} of the energy; {needed} bits are enough on this data"
    )
    figures = {"overflow_outputs": sums, "bits_needed": needed}
    return Advice("cheap_overflow", text, time, keys(rows), figures, energy)
