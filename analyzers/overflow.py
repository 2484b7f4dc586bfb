"""The overflow columns of each node, from the partial sums of a run."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tracer.accumulators.spec.accumulator import NARROWEST
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.records.columns import BY_NAME, SPECS

_EXTREMES = ("acc_min", "acc_max", "final_min", "final_max")
_COUNTED = ("outputs", "overflow_outputs", "transient_outputs", "persistent_outputs")
_EMULATED = ("saturation_events", "outputs_changed", "max_abs_error")

COLUMNS = tuple(spec.name for spec in SPECS if spec.table == "overflow" and spec.kind == "stored")
"""The columns that this analyzer fills, whole numbers all."""


def overflow(sums: Sequence[PartialSums]) -> pd.DataFrame:
    """The overflow columns (Int64), indexed by node key, for every node that has sums.

    Counts are over all inferences and all channels; extremes and errors are in integer units,
    before any scale. A node without outputs has a width and no other value.
    """
    rows = {each.node: _row(each) for each in sums}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))
    return table.astype("Int64")


def channels(sums: PartialSums) -> pd.DataFrame:
    """The same columns (Int64) with a row for each output channel of one node.

    `bits_datatype` is of the node as a whole, and is missing. Counts of what was emulated are
    missing where an output that overflows was not.
    """
    tally = sums.tally
    counts = tally.overflow(tally.accumulator.bits)
    table = pd.DataFrame({name: getattr(tally, name) for name in _EXTREMES})
    table["bits_observed"] = tally.bits_observed
    table["bits_guaranteed"] = sums.guaranteed_channels
    table["bits"] = tally.accumulator.bits
    for name in _COUNTED:
        table[name] = getattr(counts, name)
    for name in _EMULATED:
        table[name] = pd.Series(getattr(tally, name)).where(tally.missing == 0)
    table = table.reindex(columns=list(COLUMNS)).astype("Int64")
    seen = [*_EXTREMES, "bits_observed", *_EMULATED]
    table.loc[tally.outputs == 0, seen] = pd.NA
    return table


def widths(sums: PartialSums) -> pd.DataFrame:
    """How many outputs of a node would overflow (Int64), a row for each width.

    `bits`, `overflow_outputs`, `transient_outputs`, `persistent_outputs`; from the narrowest width
    to the first at which nothing seen overflows.
    """
    enough = min(
        int(sums.tally.bits_observed.max(initial=NARROWEST)), sums.tally.accumulator.widest
    )
    counts = {bits: sums.tally.overflow(bits) for bits in range(NARROWEST, enough + 1)}
    rows = [
        {"bits": bits, **{name: int(getattr(count, name).sum()) for name in _COUNTED[1:]}}
        for bits, count in counts.items()
    ]
    return pd.DataFrame(rows).astype("Int64")


def _row(sums: PartialSums) -> dict[str, int | None]:
    """The columns of one node: its channels' together."""
    by_channel = channels(sums)
    row: dict[str, int | None] = {
        "bits": sums.tally.accumulator.bits,
        "bits_guaranteed": sums.guaranteed,
        "bits_datatype": sums.datatype,
    }
    for name in (*_EXTREMES, "bits_observed", *_COUNTED, *_EMULATED):
        row[name] = _joined(by_channel[name], BY_NAME[name].fold)
    if sums.tally.missing.any():
        row.update(dict.fromkeys(_EMULATED))
    return row


def _joined(column: pd.Series[int], how: str) -> int | None:
    known = column.dropna()
    return int(known.agg(how)) if len(known) else None
