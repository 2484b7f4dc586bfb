"""`.md`: the table of each run for a README or an issue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analyzers.advice import advise
from analyzers.grouping import remark
from analyzers.views import ViewOptions, _headline, _overflow
from analyzers.views._columns import count
from analyzers.views._format import cell, micros, percent, roof, si
from analyzers.views._tables import folded, largest_first, sections
from tracer.records.trace import Trace

_COLUMNS = (
    ("node", "node", str),
    ("module", "module", str),
    ("source", "source", str),
    ("op", "op_type", str),
    ("time µs", "time_us", micros),
    ("raw µs", "time_us_raw", micros),
    ("replayed µs", "time_us_replayed", micros),
    ("share", "time_share", percent),
    ("total µs", "time_us_total", micros),
    ("µs/call", "time_us_per_call", micros),
    ("MACs", "macs", si),
    ("flops", "flops", si),
    ("params", "params", si),
    ("GFLOP/s", "gflops_per_s", si),
    ("roof", "roof_fraction", roof),
    ("bound", "bound", str),
    ("peak B", "peak_bytes", si),
    ("also holds", "also_holds", str),
    ("timed in", "timed_in", str),
    ("bits", "bits", count),
    ("outputs", "outputs", _overflow.number),
    ("overflow", "overflow_outputs", _overflow.number),
    ("transient", "transient_outputs", _overflow.number),
    ("persistent", "persistent_outputs", _overflow.number),
    ("changed", "outputs_changed", _overflow.number),
    ("max error", "max_abs_error", _overflow.number),
    ("observed", "bits_observed", _overflow.width),
    ("guaranteed", "bits_guaranteed", _overflow.width),
    ("datatype", "bits_datatype", _overflow.width),
)


def render(trace: Trace, options: ViewOptions) -> bytes:
    """GitHub-flavoured Markdown, UTF-8; columns nobody filled are left out."""
    lines: list[str] = []
    for section in sections(trace):
        lines += [f"### {cell(_headline.headline(trace, section))}", ""]
        if _overflow.known(section.nodes):
            lines += [f"- {line}" for line in _overflow.words(section.nodes)]
        if section.run is not None:
            lines += [f"- {line}" for line in _headline.verdict(section.run, section.nodes)]
        lines += [f"- {_headline.totals(trace, section.nodes)}"]
        needs = (*_headline.memory(section), *_headline.roofs(trace.environment.peaks))
        lines += [*(f"- {cell(line)}" for line in needs), ""]
        if len(section.nodes):
            rows = folded(section, options)
            lines += [*_table(rows, options.top), ""]
            said = remark(rows, options.by)
            lines += [f"- note: {cell(said)}"] if said else []
        found = [cell(each.text) for each in advise(trace, section.run, section.nodes)]
        lines += [f"- {text}" for text in found] + [""] * bool(found)
    lines += [f"- note: {cell(note)}" for note in trace.notes]
    lines.append(f"- {cell(trace.environment.summary)}")
    return ("\n".join(lines) + "\n").encode()


def _table(rows: pd.DataFrame, top: int | None) -> Iterator[str]:
    rows = largest_first(rows)
    columns = [c for c in _COLUMNS if c[1] in rows and rows[c[1]].notna().any()]
    yield "| " + " | ".join(header for header, _, _ in columns) + " |"
    yield "|" + "|".join("---" if text is str else "---:" for _, _, text in columns) + "|"
    for _, row in (rows.head(top) if top else rows).iterrows():
        yield "| " + " | ".join(_text(row[field], text) for _, field, text in columns) + " |"


def _text(value: Any, text: Any) -> str:
    if pd.isna(value):
        return ""
    return cell(value) if text is str else text(float(value))
