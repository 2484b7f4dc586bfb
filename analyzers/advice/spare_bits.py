"""Advise on nodes that take much of the energy in accumulators wider than their sums need."""

from typing import Any

import pandas as pd

from tracer.analyzers.advice._evidence import Advice, Evidence, keys, percentage, share
from tracer.analyzers.advice._spare import are_hot, guaranteed, spare
from tracer.analyzers.views.text import plural
from tracer.text import brief

_SHARE = 0.1
"""With less of the energy, narrowing changes the total by about one percent at most."""


def rule(evidence: Evidence) -> Advice | None:
    """Returns advice on nodes with spare bits, but those that `worth_narrowing` is about."""
    rows = spare(evidence)
    rows = rows[~are_hot(rows)]
    energy = float(rows["energy_share"].sum())
    if energy < _SHARE:
        return None
    first, others = rows.iloc[0], rows.iloc[1:]
    text = f"spare bits: {_described(first)}{_and_others(others)}. Try widths with tracer whatif"
    time = share(rows["time_share"].sum())
    figures = {"spare_bits": int(first["spare"]), "spare_bits_guaranteed": guaranteed(first)}
    return Advice("spare_bits", text, time, keys(rows), figures, energy)


def _described(row: "pd.Series[Any]") -> str:
    bits, spare = int(row["bits"]), int(row["spare"])
    return (
        f"{brief(str(row['node']))} takes {percentage(row['energy_share'])} of the energy and "
        f"{percentage(share(row['time_share']))} of the time, and has {plural(spare, 'bit')} to "
        f"spare on this data ({bits - spare} of {bits} are needed), {guaranteed(row)} for any "
        "input"
    )


def _and_others(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    energy = percentage(float(rows["energy_share"].sum()))
    return (
        f"; {plural(len(rows), 'more node')} with {energy} of the energy "
        f"{'has' if len(rows) == 1 else 'have'} {int(rows['spare'].min())} or more"
    )
