"""The rows of each run: which of them a view shows, and in what order."""

from dataclasses import dataclass

import pandas as pd

from tracer.analyzers.grouping import grouped
from tracer.analyzers.options import SAMPLE, ViewOptions, refuse_depth, sort_column
from tracer.analyzers.serving import served
from tracer.analyzers.table import own_rows
from tracer.analyzers.views.trace.overflow import worst_first
from tracer.records.columns import BY_NAME
from tracer.records.topology import Topology
from tracer.records.trace import Run, Trace

_OF_PHASE = ["phase", "past"]
_LEADING = ["executor", "batch"]
"""First columns of grouped rows in a file, in the order of the node table."""


@dataclass(frozen=True, slots=True)
class Section:
    """One run and its rows of the node table; a count has no run, an empty model no rows.

    `phase` and `past` are those of a language model whose phases were run or counted. `topology`
    is how the nodes are connected, if known.
    """

    run: Run | None
    batch: int | None
    nodes: pd.DataFrame
    topology: Topology | None = None
    phase: str | None = None
    past: int | None = None

    @property
    def key(self) -> dict[str, str | int | None]:
        """The cells that its rows share in columns which tell sections apart."""
        counted = {"batch": self.batch, "phase": self.phase, "past": self.past}
        return self.run.key if self.run is not None else dict.fromkeys(Run.KEY) | counted


def sections(trace: Trace) -> tuple[Section, ...]:
    """A section for each run with rows of its own, in their order; one if no run has any.

    In a merged trace, other runs are joined to these rows.
    """
    taken: set[object] = set()
    shown = []
    for run in trace.runs:
        nodes = own_rows(trace, run)
        if taken.isdisjoint(nodes.index) and (len(nodes) or trace.nodes.empty):
            shown.append(Section(run, run.batch, nodes, trace.model.topology, run.phase, run.past))
            taken.update(nodes.index)
    if shown:
        return tuple(shown)
    if trace.nodes["phase"].notna().any():
        return tuple(
            _counted(trace, nodes) for _, nodes in trace.nodes.groupby(_OF_PHASE, sort=False)
        )
    return (_counted(trace, trace.nodes),)


def _counted(trace: Trace, nodes: pd.DataFrame) -> Section:
    """Returns the section of rows that were counted without a run."""
    cells = {name: nodes[name].dropna() for name in ("batch", *_OF_PHASE)}
    batch, phase, past = (values.iloc[0] if len(values) else None for values in cells.values())
    return Section(
        None,
        None if batch is None else int(batch),
        nodes,
        trace.model.topology,
        phase,
        None if past is None else int(past),
    )


def joined_runs(trace: Trace) -> tuple[Run, ...]:
    """The runs of a merged trace that have no section."""
    own = [id(section.run) for section in sections(trace)]
    return tuple(run for run in trace.runs if id(run) not in own)


def table(trace: Trace, options: ViewOptions) -> pd.DataFrame:
    """The rows of all sections, as files hold them."""
    return pd.concat([rows(section, options) for section in sections(trace)], ignore_index=True)


def folded(section: Section, options: ViewOptions) -> pd.DataFrame:
    """The rows of a section as `options` fold them, in the order of the graph.

    A constant or a conversion without a kernel is in the row of the node that it serves.
    """
    refuse_depth(options.by, options.depth)
    if options.by == "node" and options.expand:
        return section.nodes
    serves = served(section.topology) if options.by == "node" else None
    return grouped(section.nodes, options.by, section.run, options.depth, serves)


def rows(section: Section, options: ViewOptions) -> pd.DataFrame:
    """The node table of a section as it is; folded or shortened, its largest rows first.

    Samples are in the order of the data; shortened, those with the most overflows come first.
    """
    if options.by == "node":
        refuse_depth(options.by, options.depth)
        nodes = section.nodes
        if not options.top and options.sort is None:
            return nodes
        return nodes.loc[ordered(nodes, options).index[: options.top or None]]
    groups = folded(section, options)
    if options.by == SAMPLE:
        if not options.top and options.sort is None:
            return groups
        return groups.loc[chosen(worst_first(groups), options).index[: options.top or None]]
    groups = groups.assign(**section.key)
    groups = groups.astype({name: BY_NAME[name].dtype for name in Run.KEY})
    groups = groups[[*_LEADING, *groups.columns.drop(_LEADING)]]
    return groups.loc[ordered(groups, options).index[: options.top or None]]


def ordered(nodes: pd.DataFrame, options: ViewOptions) -> pd.DataFrame:
    """Sorted by `options.sort`, by default by time, or without times by MACs and then flops.

    The columns that views compute are added. Missing values are last.
    """
    keys = ["time_us"] if nodes["time_us"].notna().any() else ["macs", "flops"]
    ranked = nodes[keys]
    if "time_us_ci95_low" in nodes:  # bounds have no order: they follow, in that of the model
        ranked = ranked.where(nodes["time_us_ci95_low"].ne(0) | nodes["time_us"].isna(), -1.0)
    order = ranked.sort_values(keys, ascending=False, kind="stable", na_position="last").index
    return chosen(displayed(nodes.loc[order]), options)


def chosen(rows: pd.DataFrame, options: ViewOptions) -> pd.DataFrame:
    """Sorted by `options.sort`: names and positions upwards, amounts downwards; else as they are.

    Raises UsageError for a column that such rows cannot have.
    """
    if options.sort is None:
        return rows
    spec = sort_column(options.sort, options.by)
    if spec.name not in rows:
        return rows
    upwards = spec.is_name or spec.name == "index"
    return rows.sort_values(spec.name, ascending=upwards, kind="stable", na_position="last")


def displayed(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns rows with the columns that views compute, and without `nodes` where all are 1."""
    if "nodes" in rows and not (rows["nodes"] > 1).any():
        rows = rows.drop(columns="nodes")
    share = rows["time_share"]
    rows = rows.assign(bar=share / share.max())
    if "bytes_read" in rows:
        rows["bytes_moved"] = rows["bytes_read"] + rows["bytes_written"]
    if "time_us_ci95_high" in rows:
        half = (rows["time_us_ci95_high"] - rows["time_us_ci95_low"]) / 2
        rows["time_us_plus_minus"] = half.where(rows["time_us_ci95_low"] > 0)
    return rows
