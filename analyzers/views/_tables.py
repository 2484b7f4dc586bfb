"""What the views share: the rows of each run, which of them are shown, and in what order."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analyzers.grouping import grouped
from analyzers.options import ViewOptions, refuse_depth
from tracer.records.trace import Run, Trace


@dataclass(frozen=True, slots=True)
class Section:
    """One run and its rows of the node table, of which there may be none; a count has no run."""

    run: Run | None
    batch: int | None
    nodes: pd.DataFrame


def sections(trace: Trace) -> tuple[Section, ...]:
    """A section for each run, in their order; one for a trace that nothing ran for."""
    if trace.runs:
        return tuple(Section(run, run.batch, _rows_of(trace.nodes, run)) for run in trace.runs)
    known = trace.nodes["batch"].dropna()
    return (Section(None, int(known.iloc[0]) if len(known) else None, trace.nodes),)


def table(trace: Trace, options: ViewOptions) -> pd.DataFrame:
    """The rows of every section that `rows` shows."""
    return pd.concat([rows(section, options) for section in sections(trace)], ignore_index=True)


def folded(section: Section, options: ViewOptions) -> pd.DataFrame:
    """The rows of a section as `options` fold them, in the order of the graph.

    A kernel of several nodes bears the name of the first, and says how many more: `conv1 +2`.
    """
    found = grouped(section.nodes, options.by, section.run, options.depth)
    if options.by != "node":
        return found
    more = found["nodes"] - 1
    return found.assign(
        node=found["node"].where(more == 0, found["node"] + " +" + more.astype(str))
    )


def rows(section: Section, options: ViewOptions) -> pd.DataFrame:
    """The node table of a section as it is; folded or shortened, its largest rows first."""
    if options.by == "node":
        refuse_depth(options.by, options.depth)
        nodes = section.nodes
        return largest_first(nodes).head(options.top) if options.top else nodes
    found = folded(section, options)
    found.insert(0, "batch", section.batch)
    found.insert(0, "executor", section.run.executor if section.run else None)
    found = largest_first(found.astype({"executor": "string", "batch": "Int64"}))
    return found.head(options.top) if options.top else found


def largest_first(nodes: pd.DataFrame) -> pd.DataFrame:
    """Sorted by time where there is one, else by MACs and then flops; what is missing is last."""
    keys = ["time_us"] if nodes["time_us"].notna().any() else ["macs", "flops"]
    return nodes.sort_values(keys, ascending=False, kind="stable", na_position="last")


def _rows_of(nodes: pd.DataFrame, run: Run) -> pd.DataFrame:
    same_batch = nodes["batch"].isna() if run.batch is None else nodes["batch"] == run.batch
    return nodes[(nodes["executor"] == run.executor) & same_batch.fillna(False)]
