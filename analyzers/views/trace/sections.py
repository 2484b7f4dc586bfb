"""The rows of each run: which of them a view shows, and in what order."""

from dataclasses import dataclass

import pandas as pd

from analyzers.grouping import grouped
from analyzers.options import ViewOptions, refuse_depth
from analyzers.table import own_rows
from tracer.records.trace import Run, Trace


@dataclass(frozen=True, slots=True)
class Section:
    """One run and its rows of the node table; a count has no run, an empty model no rows."""

    run: Run | None
    batch: int | None
    nodes: pd.DataFrame


def sections(trace: Trace) -> tuple[Section, ...]:
    """A section for each run with rows of its own, in their order; one if no run has any.

    In a merged trace, other runs are joined to these rows.
    """
    taken: set[object] = set()
    shown = []
    for run in trace.runs:
        nodes = own_rows(trace, run)
        if taken.isdisjoint(nodes.index) and (len(nodes) or trace.nodes.empty):
            shown.append(Section(run, run.batch, nodes))
            taken.update(nodes.index)
    if shown:
        return tuple(shown)
    batches = trace.nodes["batch"].dropna()
    return (Section(None, int(batches.iloc[0]) if len(batches) else None, trace.nodes),)


def joined_runs(trace: Trace) -> tuple[Run, ...]:
    """The runs of a merged trace that have no section."""
    own = [id(section.run) for section in sections(trace)]
    return tuple(run for run in trace.runs if id(run) not in own)


def table(trace: Trace, options: ViewOptions) -> pd.DataFrame:
    """The rows of all sections, as files hold them."""
    return pd.concat([rows(section, options) for section in sections(trace)], ignore_index=True)


def folded(section: Section, options: ViewOptions) -> pd.DataFrame:
    """The rows of a section as `options` fold them, in the order of the graph.

    A kernel of several nodes has the name of its main node and the number of others: `conv1 +2`.
    """
    groups = grouped(section.nodes, options.by, section.run, options.depth)
    if options.by != "node":
        return groups
    more = groups["nodes"] - 1
    names = groups["node"].where(more == 0, groups["node"] + " +" + more.astype(str))
    return groups.assign(node=names)


def rows(section: Section, options: ViewOptions) -> pd.DataFrame:
    """The node table of a section as it is; folded or shortened, its largest rows first."""
    if options.by == "node":
        refuse_depth(options.by, options.depth)
        nodes = section.nodes
        return largest_first(nodes).head(options.top) if options.top else nodes
    groups = folded(section, options)
    groups.insert(0, "batch", section.batch)
    groups.insert(0, "executor", section.run.executor if section.run else None)
    groups = largest_first(groups.astype({"executor": "string", "batch": "Int64"}))
    return groups.head(options.top) if options.top else groups


def largest_first(nodes: pd.DataFrame) -> pd.DataFrame:
    """Sorted by time, or without times by MACs and then flops; missing values are last."""
    keys = ["time_us"] if nodes["time_us"].notna().any() else ["macs", "flops"]
    return nodes.sort_values(keys, ascending=False, kind="stable", na_position="last")
