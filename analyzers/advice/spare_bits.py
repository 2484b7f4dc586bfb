"""Advise on nodes that take much of the energy in accumulators wider than their sums need."""

from typing import Any

import pandas as pd

from analyzers.advice._evidence import Advice, Evidence, keys, percentage, share
from analyzers.views.text import plural
from tracer.text import brief

_SHARE, _BITS = 0.1, 2
"""With less of the energy, or one bit, narrowing changes the total by about one percent at most:
widths are near 20 bits, and the energy of an addition is linear in the width."""


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes with spare bits, first the largest share of the energy times bits."""
    rows = evidence.sums
    rows = rows.assign(spare=rows["bits"] - rows["bits_observed"])
    rows = rows[(rows["spare"] >= _BITS).fillna(False) & (rows["overflow_outputs"] == 0)]
    energy = float(rows["energy_share"].sum())
    if energy < _SHARE:
        return None
    worth = (rows["energy_share"] * rows["spare"]).sort_values(ascending=False, kind="stable")
    rows = rows.loc[worth.index]
    first, others = rows.iloc[0], rows.iloc[1:]
    text = f"spare bits: {_described(first)}{_and_others(others)}. Try widths with tracer whatif"
    time = share(rows["time_share"].sum())
    figures = {"spare_bits": int(first["spare"]), "spare_bits_guaranteed": _guaranteed(first)}
    return Advice("spare_bits", text, time, keys(rows), figures, energy)


def _described(row: "pd.Series[Any]") -> str:
    bits, spare = int(row["bits"]), int(row["spare"])
    return (
        f"{brief(str(row['node']))} takes {percentage(row['energy_share'])} of the energy and "
        f"{percentage(share(row['time_share']))} of the time, and has {plural(spare, 'bit')} to "
        f"spare on this data ({bits - spare} of {bits} are needed), {_guaranteed(row)} for any "
        "input"
    )


def _guaranteed(row: "pd.Series[Any]") -> int:
    """Returns the bits that no input needs; 0 where no width is guaranteed."""
    guaranteed = row["bits_guaranteed"]
    return 0 if pd.isna(guaranteed) else max(int(row["bits"]) - int(guaranteed), 0)


def _and_others(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    energy = percentage(float(rows["energy_share"].sum()))
    return (
        f"; {plural(len(rows), 'more node')} with {energy} of the energy "
        f"{'has' if len(rows) == 1 else 'have'} {int(rows['spare'].min())} or more"
    )
