"""What narrow accumulators did, in words and as a table on a terminal."""

from __future__ import annotations

import math

import pandas as pd
from rich.console import Console
from rich.text import Text

from analyzers.views._columns import Column, Row, count, field, name, named_by, table
from analyzers.views._format import percent, plural, si

_WIDEST = 64
_LONGEST = 10_000_000
"""Counts from here on are rounded."""


def number(value: float) -> str:
    """`-1,234,567`; rounded to `-1.23 G` where it is long; '' for what is not known."""
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) < _LONGEST else si(value)


def width(value: float) -> str:
    """A number of bits; no accumulator has more than 64."""
    return f">{_WIDEST}" if value > _WIDEST else count(value)


def _share(row: Row) -> str:
    return percent(row["overflow_outputs"] / row["outputs"]) if row["outputs"] else ""


def _range(row: Row) -> str:
    low, high = row["acc_min"], row["acc_max"]
    return "" if math.isnan(low) else f"{number(low)} … {number(high)}"


_COUNTS = ("outputs", "overflow_outputs", "transient_outputs", "persistent_outputs")
_COLUMNS = (
    Column("node", "node", field("node", name), 0, is_name=True),
    Column("module", "module", field("module", name), 14, is_name=True),
    Column("source", "source", field("source", name), 16, is_name=True, ends_apart=True),
    Column("op", "op_type", field("op_type", name), 8, is_name=True),
    Column("bits", "bits", field("bits", count), 1),
    Column("outputs", "outputs", field("outputs", number), 11),
    Column("overflow", "overflow_outputs", field("overflow_outputs", number), 2),
    Column("share", "overflow_outputs", _share, 3),
    Column("transient", "transient_outputs", field("transient_outputs", number), 6),
    Column("persistent", "persistent_outputs", field("persistent_outputs", number), 7),
    Column("events", "saturation_events", field("saturation_events", number), 12),
    Column("changed", "outputs_changed", field("outputs_changed", number), 9),
    Column("max error", "max_abs_error", field("max_abs_error", number), 10),
    Column("observed", "bits_observed", field("bits_observed", width), 4),
    Column("guaranteed", "bits_guaranteed", field("bits_guaranteed", width), 5),
    Column("datatype", "bits_datatype", field("bits_datatype", width), 13),
    Column("partial sums", "acc_min", _range, 15),
)


def known(nodes: pd.DataFrame) -> bool:
    """Whether any node of a node table had a narrow accumulator."""
    return "bits" in nodes and bool(nodes["bits"].notna().any())


def words(nodes: pd.DataFrame) -> tuple[str, str]:
    """Two sentences on the nodes with sums: what overflows, and which widths would be enough."""
    narrow = nodes[nodes["bits"].notna()]
    widths = narrow["bits"].unique()
    at = f"at {widths[0]} bits" if len(widths) == 1 else "at their widths"
    return _what_overflows(narrow, at), _what_is_enough(narrow)


def _what_overflows(narrow: pd.DataFrame, at: str) -> str:
    total = {name: int(narrow[name].sum()) for name in _COUNTS}
    outputs, over = total["outputs"], total["overflow_outputs"]
    if not over:
        return f"nothing overflows {at}: {plural(len(narrow), 'node')}, {outputs:,} outputs"
    nodes = int((narrow["overflow_outputs"] > 0).sum())
    return (
        f"{nodes:,} of {plural(len(narrow), 'node')} {'overflows' if nodes == 1 else 'overflow'} "
        f"{at}, in {over:,} of {outputs:,} outputs ({percent(over / outputs)}): "
        f"{total['transient_outputs']:,} transient, {total['persistent_outputs']:,} persistent"
    )


def _what_is_enough(narrow: pd.DataFrame) -> str:
    observed, guaranteed = narrow["bits_observed"], narrow["bits_guaranteed"]
    unknown = int(guaranteed.isna().sum())
    seen = f"{width(float(observed.max()))} bits hold every partial sum seen"
    if observed.isna().all():
        seen = "no partial sum was seen"
    if unknown:
        return f"{seen}; no width is guaranteed for {plural(unknown, 'node')}"
    return f"{seen}, {width(float(guaranteed.max()))} bits those of any input"


def worst_first(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with sums: those with the largest share of overflows first, then the widest."""
    rows = rows[rows["outputs"].notna()]
    made = rows["outputs"].where(rows["outputs"] > 0)
    ranked = rows.assign(_share=(rows["overflow_outputs"] / made).astype("float64"))
    ranked = ranked.sort_values(["_share", "bits_observed"], ascending=False, kind="stable")
    return ranked.drop(columns="_share")


def render(
    nodes: pd.DataFrame, folded: pd.DataFrame, named: str, top: int, console: Console
) -> None:
    """Print the words on `nodes`, and the table of `folded`, `top` rows of it or with 0 all.

    `named` is the column that names the rows.
    """
    for line in words(nodes):
        console.print(Text(line))
    rows = worst_first(folded)
    shown = rows.head(top) if top else rows
    if len(shown):
        console.print(table(named_by(named, _COLUMNS), shown, console.width))
    if len(shown) < len(rows):
        console.print(Text(f"… {len(rows) - len(shown):,} more; --top 0 shows all", style="dim"))
    console.print(Text(_totals(nodes)))


def _totals(nodes: pd.DataFrame) -> str:
    narrow = nodes[nodes["bits"].notna()]
    parts = [f"{int(narrow['outputs'].sum()):,} outputs"]
    if narrow["saturation_events"].notna().all():
        parts.append(f"{int(narrow['saturation_events'].sum()):,} saturation events")
        parts.append(f"{int(narrow['outputs_changed'].sum()):,} outputs changed")
        parts.append(f"largest error {number(float(narrow['max_abs_error'].max()))}")
    return f"{plural(len(narrow), 'node')} with narrow accumulators: {', '.join(parts)}"
