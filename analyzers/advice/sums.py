"""Advice on accumulators: too narrow where width is cheap, or wider than their sums need."""

import pandas as pd

from tracer.analyzers.advice import Advice, Evidence, keys, known_share, named, percentage
from tracer.analyzers.views.text import plural
from tracer.text import brief

_CHEAP = 0.05
"""The energy of a sum is at most quadratic in the width of its accumulator. Four more bits than 16
then add half of a node's energy: of this share, less than 3 % of the whole."""
_SPARE_ENERGY = 0.1
"""With less of the energy, narrowing changes the total by about one percent at most."""
_BITS = 2
"""One bit changes the energy by about one percent at most: widths are near 20 bits, and the energy
of an addition is linear in the width."""
_HOT = 0.1
"""Share of the energy, and of the time, from which a node is hot."""


def cheap_overflow(evidence: Evidence) -> Advice | None:
    """Returns advice if nodes with little energy in total overflow for want of width."""
    rows = evidence.sums
    short = rows["bits_observed"] > rows["bits"]  # not for pairs that saturate at any width
    rows = rows[(rows["overflow_outputs"] > 0) & short.fillna(False)]
    rows = rows.sort_values("overflow_outputs", ascending=False, kind="stable")
    rows = rows[rows["energy_share"].sort_values().cumsum().reindex(rows.index) <= _CHEAP]
    if rows.empty:
        return None
    energy, time = float(rows["energy_share"].sum()), known_share(rows["time_share"].sum())
    sums = int(rows["overflow_outputs"].sum())
    needed = int(rows["bits_observed"].max())
    verbs = ("overflows", "takes") if len(rows) == 1 else ("overflow", "take")
    text = (
        f"cheap to widen: {named(rows)} {verbs[0]} in {plural(sums, 'sum')} and {verbs[1]} only "
        f"{percentage(energy)} of the energy; {needed} bits are enough on this data"
    )
    figures = {"overflow_outputs": sums, "bits_needed": needed}
    return Advice("cheap_overflow", text, time, keys(rows), figures, energy)


def spare_bits(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes with spare bits, but those that `worth_narrowing` is about."""
    rows = rows_with_spare(evidence)
    rows = rows[~are_hot(rows)]
    energy = float(rows["energy_share"].sum())
    if energy < _SPARE_ENERGY:
        return None
    first, others = rows.iloc[0], rows.iloc[1:]
    bits, spare = int(first["bits"]), int(first["spare"])
    more = ""
    if len(others):
        more = (
            f"; {plural(len(others), 'more node')} with "
            f"{percentage(float(others['energy_share'].sum()))} of the energy "
            f"{'has' if len(others) == 1 else 'have'} {int(others['spare'].min())} or more"
        )
    text = (
        f"spare bits: {brief(str(first['node']))} takes {percentage(first['energy_share'])} of the "
        f"energy and {percentage(known_share(first['time_share']))} of the time, and has "
        f"{plural(spare, 'bit')} to spare on this data ({bits - spare} of {bits} are needed), "
        f"{guaranteed(first)} for any input{more}. Try widths with tracer whatif"
    )
    time = known_share(rows["time_share"].sum())
    figures = {"spare_bits": spare, "spare_bits_guaranteed": guaranteed(first)}
    return Advice("spare_bits", text, time, keys(rows), figures, energy)


def worth_narrowing(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes with spare bits that are hot in energy and in time."""
    rows = rows_with_spare(evidence)
    rows = rows[are_hot(rows)]
    if rows.empty:
        return None
    energy, time = float(rows["energy_share"].sum()), float(rows["time_share"].sum())
    low, high = int(rows["bits_observed"].min()), int(rows["bits_observed"].max())
    bits = int(rows["bits"].max())
    verbs = ("takes", "needs") if len(rows) == 1 else ("take", "need")
    needed = f"{high}" if low == high else f"{low} to {high}"
    text = (
        f"worth narrowing: {named(rows)} {verbs[0]} {energy:.0%} of the energy and {time:.0%} of "
        f"the time, and {verbs[1]} {needed} of {bits} bits on this data. tracer whatif "
        f"{brief(evidence.model)} --accumulator {low}:{bits} finds the widths that keep the "
        "accuracy"
    )
    figures = {"bits": bits, "bits_needed": high, "spare_bits": int(rows["spare"].min())}
    return Advice("worth_narrowing", text, time, keys(rows), figures, energy)


def rows_with_spare(evidence: Evidence) -> pd.DataFrame:
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


RULES = (cheap_overflow, spare_bits, worth_narrowing)
