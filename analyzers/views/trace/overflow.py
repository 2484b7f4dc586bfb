"""The overflow table of a trace: what narrow accumulators did, in words and by row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from tracer.accumulators.spec import WIDEST
from tracer.analyzers.overflow import coverage
from tracer.analyzers.views.text import digits, extent, full, number, percent, plural, si, width
from tracer.records.trace import Trace
from tracer.text import agree, brief

if TYPE_CHECKING:
    from tracer.records.whatif import Coverage

_LEAST = 0.001
"""Share below which a percentage with one decimal would be 0."""


def _float_words(floats: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on rows with float accumulators: what overflows, which terms are lost, errors."""
    kinds = floats["accumulator"].unique()
    first = _overflows(floats, str(kinds[0]) if len(kinds) == 1 else "their float accumulators")
    share, error = floats["swamped_share"], floats["rel_error_p99"]
    lost, errors = "no sum loses a term", "no sum has an error that is known"
    if (share > 0).any():
        most, node = float(share.max()), brief(str(floats["node"].iloc[int(share.argmax())]))
        part = percent(most) if most >= _LEAST else f"less than {percent(_LEAST)}"
        lost = f"sums of {node} lose {part} of their terms{', the most' * (len(floats) > 1)}"
    if error.notna().any():
        node = brief(str(floats["node"].iloc[int(error.argmax())]))
        errors = (
            f"99 % of the sums of {node} have a relative error of at most "
            f"{digits(float(error.max()))}"
        )
    return first, f"{lost}; {errors}"


_INPUTS = "inputs are "
"""How the note on the inputs of a run begins."""

_COUNTS = ("overflow_outputs", "transient_outputs", "persistent_outputs")


def has_overflow(nodes: pd.DataFrame) -> bool:
    """Whether the sums of any node of a node table were counted."""
    return "outputs" in nodes and bool(nodes["outputs"].notna().any())


def counted(trace: Trace) -> tuple[str, ...]:
    """What the sums of a trace are over, and how their terms are added."""
    lines = []
    for run in trace.runs:
        accumulators = [sums.tally.accumulator for sums in run.sums]
        kinds = dict.fromkeys(f"{each.order}, {each.overflow}" for each in accumulators)
        data = [note for note in run.notes if note.startswith(_INPUTS)]
        floats = [(sums.tally.accumulator, sums.tally.operands) for sums in run.float_sums]
        kinds |= dict.fromkeys(", ".join(filter(None, pair)) for pair in floats)
        if kinds:
            lines.append(f"sums  {' · '.join((*data, *kinds))}")
    return tuple(lines)


def sums_words(nodes: pd.DataFrame) -> tuple[str, ...]:
    """Two sentences on the nodes with sums: what overflows, and which widths suffice.

    Nodes with float accumulators have sentences of their own.
    """
    narrow, floats = _by_kind(nodes)
    covered = coverage(nodes, pd.Series(nodes.index.isin(narrow.index), nodes.index))
    integers = _integer_words(narrow, covered) if len(narrow) or floats.empty else ()
    return (*integers, *(_float_words(floats) if len(floats) else ()))


def _by_kind(nodes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows with sums in integers, and those in floats."""
    counted = nodes[nodes["outputs"].notna()]
    is_float = counted["accumulator"].notna() & counted["bits"].isna()
    return counted[~is_float], counted[is_float]


def of_samples(samples: pd.DataFrame) -> str:
    """A sentence on how many samples overflow, and where most."""
    over = samples[samples["overflow_outputs"] > 0]
    if over.empty:
        return f"nothing overflows in {plural(len(samples), 'sample')}"
    most = over["worst_node"].mode().iloc[0]
    return (
        f"{len(over):,} of {plural(len(samples), 'sample')} {_verb(len(over))}; in "
        f"{(over['worst_node'] == most).sum():,} of them {most} overflows most"
    )


def _overflows(rows: pd.DataFrame, what: str) -> str:
    """In how many nodes and outputs `what` overflows."""
    outputs, over = (int(rows[name].sum()) for name in ("outputs", "overflow_outputs"))
    of_nodes, of_outputs = plural(len(rows), "node"), plural(outputs, "output")
    if not over:
        return f"nothing overflows {what}: {of_nodes}, {of_outputs}"
    nodes, share = int((rows["overflow_outputs"] > 0).sum()), percent(over / (outputs or 1))
    return f"{nodes:,} of {of_nodes} {_verb(nodes)} {what}, in {over:,} of {of_outputs} ({share})"


def _verb(count: int) -> str:
    return "overflows" if count == 1 else "overflow"


def _integer_words(narrow: pd.DataFrame, covered: Coverage) -> tuple[str, str]:
    """What overflows in rows with narrow accumulators, and which widths suffice."""
    widths = narrow["bits"].dropna().unique()  # a damaged trace may lack them
    at = f"at {widths[0]} bits" if len(widths) == 1 else "at their widths"
    over, transient, persistent = (int(narrow[name].sum()) for name in _COUNTS)
    overflows = _overflows(narrow, at)
    if over:
        overflows += f": {transient:,} transient, {persistent:,} persistent"
    observed, guaranteed = narrow["bits_observed"], narrow["bits_guaranteed"]
    unknown = int(guaranteed.isna().sum())
    data = "no partial sum was observed"
    if observed.notna().any():
        is_held = observed.max() <= WIDEST
        enough = f"{width(float(observed.max()))} bits suffice" if is_held else "no width suffices"
        data = f"{enough} for this data"
    if unknown:
        return overflows, f"{data}; no width is guaranteed for {plural(unknown, 'node')}"
    most = float(guaranteed.max())
    bits = f"{width(most)} bits" if most <= WIDEST else "no width"
    where = ", " if covered.is_whole else "; guaranteed at "
    extents = "" if covered.is_whole else f": {extent(covered)}"
    inner = ""
    if ((narrow["overflow_outputs"] > 0) & (observed <= narrow["bits"])).any():
        needed = narrow["bits_guaranteed_inner"].max()
        enough = (
            "" if pd.isna(needed) else f", which need {width(float(needed))} bits for any input"
        )
        inner = f"; no width keeps inner registers from overflowing{enough}"
    return overflows, f"{data}{where}{bits} for any input{extents}{inner}"


def worst_first(rows: pd.DataFrame, full_numbers: bool = False) -> pd.DataFrame:
    """Rows with sums: those with the largest share of overflows first, then the widest.

    Among float accumulators, those that lose most of their terms are first.
    """
    ranked = sums_text(rows[rows["outputs"].notna()], full_numbers)
    keys = [key for key in _WORST if key in ranked]
    return ranked.sort_values(keys, ascending=False, kind="stable")


_WORST = ("overflow_share", "bits_observed", "swamped_share", "rel_error_p99")


def sums_text(rows: pd.DataFrame, full_numbers: bool = False) -> pd.DataFrame:
    """Rows with `overflow_share`, and with `partial_sums`, the range as text."""
    outputs = rows["outputs"].where(rows["outputs"] > 0)
    write = full if full_numbers else number
    low, high = (rows[name].astype("float64") for name in ("acc_min", "acc_max"))
    return rows.assign(
        overflow_share=(rows["overflow_outputs"] / outputs).astype("float64"),
        partial_sums=[
            "" if math.isnan(least) else f"{write(least)} … {write(most)}"
            for least, most in zip(low, high, strict=True)
        ],
    )


def sums_totals(nodes: pd.DataFrame, full_numbers: bool = False) -> tuple[str, ...]:
    """The counts over all nodes with narrow accumulators, and with float accumulators."""
    narrow, floats = _by_kind(nodes)
    floating: tuple[str, ...] = ()
    if len(floats):
        terms = int(floats["terms"].sum())
        swamped = float((floats["swamped_share"] * floats["terms"].astype("float64")).sum())
        share = f", {percent(swamped / terms)} of them swamped" if terms else ""
        named = f"{si(terms)} {agree(terms, 'term', 'terms')}"
        counts = f"{plural(int(floats['outputs'].sum()), 'output')}, {named}{share}"
        floating = (f"{plural(len(floats), 'node')} with float accumulators: {counts}",)
    if narrow.empty and floating:
        return floating
    parts = [plural(int(narrow["outputs"].sum()), "output")]
    if len(narrow) and narrow["saturation_events"].notna().all():
        parts.append(plural(int(narrow["saturation_events"].sum()), "saturation event"))
        parts.append(f"{plural(int(narrow['outputs_changed'].sum()), 'output')} changed")
        largest = float(narrow["max_abs_error"].max())
        parts.append(f"largest error {full(largest) if full_numbers else number(largest)}")
    integers = f"{plural(len(narrow), 'node')} with narrow accumulators: {', '.join(parts)}"
    return (integers, *floating)
