"""Columns of sums by node: overflow of integers and floats, and the share of narrow sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracer.accumulators.spec import NARROWEST
from tracer.graph.operators import MULTIPLYING, PARTLY
from tracer.records import columns
from tracer.support.types import IntArray

if TYPE_CHECKING:
    from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums
    from tracer.accumulators.statistics.partial_sums import PartialSums
    from tracer.records.whatif import Coverage

_EXTREMES = ("acc_min", "acc_max", "final_min", "final_max")
_COUNTED = ("outputs", "overflow_outputs", "transient_outputs", "persistent_outputs")
_EMULATED = ("saturation_events", "outputs_changed", "max_abs_error")

_WIDTHS = ("bits_observed", "bits_guaranteed", "bits_guaranteed_inner", "bits_datatype", "bits")

_OWN = frozenset((*_EXTREMES, *_WIDTHS, *_COUNTED, *_EMULATED))
COLUMNS = tuple(name for name in columns.COLUMNS if name in _OWN)
"""The columns that this analyzer fills; all are whole numbers."""


def overflow(sums: Sequence[PartialSums]) -> pd.DataFrame:
    """Returns the overflow columns (Int64), indexed by node key, for every node with sums.

    Counts cover all inferences and channels. Extremes and errors are in integer units, before any
    scale. A node without outputs has only a width.
    """
    rows = {}
    for of_node in sums:
        by_channel = channels(of_node)
        row: dict[str, int | None] = {
            "bits": of_node.tally.accumulator.bits,
            "bits_guaranteed": of_node.guaranteed,
            "bits_guaranteed_inner": of_node.guaranteed_inner,
            "bits_datatype": of_node.datatype,
        }
        for name in (*_EXTREMES, "bits_observed", *_COUNTED, *_EMULATED):
            present = by_channel[name].dropna()
            row[name] = int(present.agg(columns.BY_NAME[name].fold)) if len(present) else None
        if of_node.tally.missing.any():
            row.update(dict.fromkeys(_EMULATED))
        rows[of_node.node] = row
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))
    return table.astype("Int64")


def channels(sums: PartialSums) -> pd.DataFrame:
    """Returns the same columns (Int64) for each output channel of one node.

    `bits_datatype` belongs to the whole node and is missing. Counts of the emulation are missing
    for a channel with an overflow that was not emulated.
    """
    tally = sums.tally
    counts = tally.overflow()
    table = pd.DataFrame({name: getattr(tally, name) for name in _EXTREMES})
    table["bits_observed"] = tally.bits_observed
    table["bits_guaranteed"] = sums.guaranteed_channels
    table["bits_guaranteed_inner"] = sums.guaranteed_inner_channels
    table["bits"] = list(tally.accumulator.widths) or tally.accumulator.bits
    for name in _COUNTED:
        table[name] = getattr(counts, name)
    for name in _EMULATED:
        table[name] = pd.Series(getattr(tally, name)).where(tally.missing == 0)
    table = table.reindex(columns=list(COLUMNS)).astype("Int64")
    seen = [*_EXTREMES, "bits_observed", *_EMULATED]
    table.loc[tally.outputs == 0, seen] = pd.NA
    return table


def widths(sums: PartialSums) -> pd.DataFrame:
    """Returns how many outputs of a node would overflow (Int64), a row for each width.

    Columns: `bits`, `overflow_outputs`, `transient_outputs`, `persistent_outputs`. Rows end at the
    first width without an overflow on this data.
    """
    counts = {bits: sums.tally.overflow(bits) for bits in range(NARROWEST, _enough(sums) + 1)}
    rows = [
        {"bits": bits, **{name: int(getattr(count, name).sum()) for name in _COUNTED[1:]}}
        for bits, count in counts.items()
    ]
    return pd.DataFrame(rows).astype("Int64")


def by_width(all_sums: Sequence[PartialSums]) -> tuple[range, IntArray, IntArray]:
    """Returns widths, and how many outputs overflow, and persistently, (nodes × widths) at each.

    The widths end at the first without an overflow in any node on this data.
    """
    most = max(map(_enough, all_sums), default=NARROWEST)
    every = range(NARROWEST, most + 1)
    counted = np.zeros((2, len(all_sums), len(every)), np.int64)
    for node, sums in enumerate(all_sums):
        for column, bits in enumerate(every):
            counts = sums.tally.overflow(min(bits, sums.tally.accumulator.widest))
            counted[0, node, column] = counts.overflow_outputs.sum()
            counted[1, node, column] = counts.persistent_outputs.sum()
    return every, counted[0], counted[1]


def _enough(sums: PartialSums) -> int:
    return min(max(bits_observed(sums), NARROWEST), sums.tally.accumulator.widest)


def widest(all_sums: Sequence[PartialSums], most: int) -> Sequence[PartialSums]:
    """Returns the `most` nodes that need the most bits (0: all), in the order of the model."""
    if not most or len(all_sums) <= most:
        return all_sums
    ranked = sorted(all_sums, key=lambda sums: -bits_observed(sums))
    kept = {id(sums) for sums in ranked[:most]}
    return [sums for sums in all_sums if id(sums) in kept]


def bits_observed(sums: PartialSums) -> int:
    """Returns the width that holds every observed partial sum of a node."""
    return int(sums.tally.bits_observed.max(initial=0))


_PERCENTILES = {"rel_error_p50": 50, "rel_error_p99": 99}
FLOAT_COLUMNS = (
    "accumulator", "operands", "outputs", "overflow_outputs", "terms", "swamped_share",
    *_PERCENTILES,
)  # fmt: skip
"""The columns that this analyzer fills."""


def of_floats(sums: Sequence[FloatPartialSums]) -> pd.DataFrame:
    """Returns the columns of every node with float sums, indexed by node key.

    Counts cover all inferences. Errors are relative to the sum of the same products in float64.
    """
    rows = {}
    for each in sums:
        tally = each.tally
        rows[each.node] = {
            "accumulator": tally.accumulator,
            "operands": tally.operands,
            "outputs": tally.outputs,
            "overflow_outputs": tally.overflow_outputs,
            "terms": tally.terms,
            "swamped_share": tally.swamped_share,
            **{name: tally.error_percentile(percent) for name, percent in _PERCENTILES.items()},
        }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(FLOAT_COLUMNS))
    return table.astype({name: columns.BY_NAME[name].dtype for name in FLOAT_COLUMNS})


def coverage(nodes: pd.DataFrame, narrow: pd.Series) -> Coverage:
    """Returns the coverage of the `narrow` nodes, a bool for each row.

    `nodes` has the columns `op_type`, `macs`, and `calls` after a run. A node of unknown MACs, or
    in a branch that did not run, multiplies if its operator does. An operator whose products are
    partly wide is not covered.
    """
    from tracer.records.whatif import Coverage  # 10 ms, and most results are of times

    macs = nodes["macs"].astype("Float64")
    unknown = macs.isna() | (nodes["calls"].eq(0) if "calls" in nodes else False)
    multiplies = (macs > 0).fillna(False) | (unknown & nodes["op_type"].isin(MULTIPLYING))
    covered = multiplies & narrow.astype(bool) & ~nodes["op_type"].isin(PARTLY)
    known = macs[multiplies]
    share = None
    if len(known) and known.notna().all():
        share = float(macs[covered].sum() / known.sum())
    return Coverage(int(covered.sum()), int(multiplies.sum()), share)
