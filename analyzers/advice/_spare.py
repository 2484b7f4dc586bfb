"""Nodes whose accumulators are wider than their sums need, and which of them are hot."""

import pandas as pd

from tracer.analyzers.advice._evidence import Evidence

_BITS = 2
"""One bit changes the energy by about one percent at most: widths are near 20 bits, and the energy
of an addition is linear in the width."""
_HOT = 0.1
"""Share of the energy, and of the time, from which a node is hot."""


def spare(evidence: Evidence) -> pd.DataFrame:
    """Returns the rows with `spare` bits on this data, the largest share of energy x bits first."""
    rows = evidence.sums
    rows = rows.assign(spare=rows["bits"] - rows["bits_observed"])
    rows = rows[(rows["spare"] >= _BITS).fillna(False) & (rows["overflow_outputs"] == 0)]
    worth = (rows["energy_share"] * rows["spare"]).sort_values(ascending=False, kind="stable")
    return rows.loc[worth.index]


def are_hot(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Returns whether each row takes a large share of the energy, and of the time."""
    return (rows["energy_share"] >= _HOT) & (rows["time_share"].fillna(0) >= _HOT)


def guaranteed(row: "pd.Series[float]") -> int:
    """Returns the bits that no input needs; 0 where no width is guaranteed."""
    bits = row["bits_guaranteed"]
    return 0 if pd.isna(bits) else max(int(row["bits"]) - int(bits), 0)
