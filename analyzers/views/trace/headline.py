"""The sections of a trace, their rows, and the lines on what ran, how long and how much it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from tracer.analyzers import grouping
from tracer.analyzers.options import SAMPLE, ViewOptions, refuse_depth, sort_column
from tracer.analyzers.table import backward_share, own_rows
from tracer.analyzers.timing import coverage, empty, wall
from tracer.analyzers.views.text import duration, full, percent, plural, quantity, si
from tracer.analyzers.views.trace.overflow import worst_first
from tracer.records.columns import BY_NAME
from tracer.records.environment import Peaks, queues, short_name
from tracer.records.model_info import Topology
from tracer.records.trace import BUSY, Run, Trace
from tracer.text import agree, brief

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
    serves = grouping.served(section.topology) if options.by == "node" else None
    return grouping.grouped(section.nodes, options.by, section.run, options.depth, serves)


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


Text: TypeAlias = Callable[[float], str]
"""Writes a number."""

_SAME = 1e-6
"""µs by which two sums of the same times may differ."""

_NOTABLE = 0.01
"""Share of the wall from which on the time of returning outputs is told."""

_NAMED = 4
"""Operators of a provider that a line names."""

_ALL = "all"
"""The default of `--optimization`; a headline leaves it out so that it fits 80 columns."""


def headline(trace: Trace, section: Section) -> str:
    """The model and how it ran."""
    run = section.run
    parts = [trace.model.name]
    if section.batch is not None:
        parts.append(f"batch {section.batch:,}")
    if section.phase is not None:
        parts.append(f"{section.phase}, past {section.past:,}")
    if run is not None:
        parts += [*execution(trace, run), plural(len(run.instrumented_us), "run")]
    return " · ".join(parts)


def execution(trace: Trace, run: Run) -> Iterator[str]:
    """Yields the executor with its version, and its optimization and threads where they tell."""
    yield f"{run.executor} {trace.environment.version(run.executor)}".strip()
    if run.optimization not in (None, _ALL):
        yield f"optimization {run.optimization}"
    if run.threads is not None:
        yield plural(run.threads, "thread")


def verdict(run: Run, nodes: pd.DataFrame) -> tuple[str, ...]:
    """How busy the machine was, wall time, sums over nodes, what returns outputs, and the rest.

    The sum over nodes is told with profiler overhead as well, if there is any, and that of the
    backward pass in a training step.
    """
    measured, runs = wall(run), len(run.wall_us)
    if run.is_emulated:  # the time of an emulation says nothing about the hardware that it emulates
        return (f"emulated in {duration(measured['mean'])} per run",)
    raw, corrected = (float(nodes[name].sum()) for name in ("time_us_raw", "time_us"))
    median, p95 = duration(measured["p50"]), duration(measured["p95"])
    spread = f"median {median}, p95 {p95}; " if runs > 1 else ""
    overhead = f" ({duration(raw)} with profiler overhead)" if abs(raw - corrected) > _SAME else ""
    kind = "unprofiled run" if run.has_undisturbed else "profiled run"
    busy = run.counted.sentence()
    alone, share = empty(run), coverage(run, nodes)
    slower = "in a slower run" if runs == 1 else "in slower runs"
    of_wall = f"{share:.0%} of wall" if share <= 1 or alone is not None else slower
    lines = [
        *([busy] if busy else []),
        f"wall  {duration(measured['mean'])} per run ({spread}{plural(runs, kind)})",
        f"nodes {duration(corrected)}{' on the device' * run.is_on_device}, {of_wall}{overhead}",
        *(note for note in run.notes if note.startswith(BUSY)),
    ]
    backward = backward_share(nodes)
    if backward is not None:
        back = f"backward {duration(backward * corrected)}, {percent(backward)} of the nodes"
        lines.append(f"{back}, {percent(backward * share)} of wall")
    returning = run.returning_us
    rest = measured["mean"] - corrected
    if returning >= _NOTABLE * measured["mean"]:
        lines.append(f"return {duration(returning)}, in which outputs are handed to the caller")
        rest -= returning
    if alone is not None:
        beyond = f"not measured: the nodes, in runs of their own, took {duration(-rest)} longer"
        # of thousands of outputs, it may copy more than all nodes take: then it is no part of this
        is_part = alone <= rest + _NOTABLE * measured["mean"]
        empty_run = f" (a run without nodes takes {duration(alone)})" if is_part else ""
        lines.append(f"rest  {duration(rest)}{empty_run}" if rest >= 0 else f"rest  {beyond}")
    return tuple(lines)


def other_columns(trace: Trace, section: Section) -> tuple[str, ...]:
    """The wall time of each other executor whose times a merged trace has in the same rows."""
    return tuple(
        f"also  {run.executor} {duration(wall(run)['mean'])} per run "
        f"({plural(len(run.wall_us), 'run')}), in columns marked @{run.executor}"
        for run in joined_runs(trace)
        if run.batch == section.batch and not run.is_emulated
    )


def totals(trace: Trace, nodes: pd.DataFrame, text: Text) -> str:
    """Sums over the model, as `text` writes them; "at least" where work is unknown."""
    if not trace.model.opsets:  # a framework ran operators, and no graph whose work can be counted
        params = trace.model.params
        parameters = f", {_parameters(params, text)}" if params is not None else ""
        return f"{plural(trace.model.nodes, 'operator')} forward{parameters}"
    own = nodes[nodes["index"].notna()]  # kernels of the runtime do no work of the model
    parts = [_sum(own["macs"], "{} MACs", text), _sum(own["flops"], "{} flops", text)]
    if trace.model.params is not None:
        parts.append(_parameters(trace.model.params, text))
    moved = own["bytes_read"] + own["bytes_written"]
    parts.append(_sum(moved, "{} moved", lambda size: quantity(size, "B", text)))
    return f"{plural(trace.model.nodes, 'node')}: {', '.join(parts)}"


def energy(trace: Trace, nodes: pd.DataFrame) -> tuple[str, ...]:
    """The energy of all nodes with MACs, in full, with its unit and model, if there is a model."""
    model = trace.settings.get("energy")
    if not model:
        return ()
    own = nodes[nodes["index"].notna() & ~(nodes["macs"] == 0).fillna(False)]
    if own["energy"].isna().all():
        return (f"energy: unknown ({model['model']})",)
    total = _sum(own["energy"], "{}", full)
    return (f"energy: {total} {model['unit']} per run ({model['model']})",)


def roofs(peaks: Peaks | None) -> tuple[str, ...]:
    """The peaks of the machine, if they were measured."""
    if peaks is None:
        return ()
    rates = ", ".join(
        f"{si(peak.rate)}{'OP' if kind == 'int8' else 'FLOP'}/s {kind}"
        for kind, peak in peaks.arithmetic.items()
    )
    return (
        f"peaks: {rates}, {si(peaks.memory.rate)}B/s memory "
        f"({peaks.card or plural(peaks.threads, 'thread')}"
        f"{', too low: the machine was busy' * peaks.is_busy})",
    )


def memory(section: Section, text: Text) -> tuple[str, ...]:
    """The most bytes alive at once, and the most in use in the runtime's arena."""
    own = section.nodes[section.nodes["index"].notna()]
    live = own["peak_bytes"].dropna()
    if section.run is not None and not any(section.nodes["output_bytes"].notna()):
        return ()  # the peaks of a framework's run are peaks of single operators
    if live.empty:
        return ()
    at_least = "at least " if len(live) < len(own) else ""
    node = brief(str(own["node"].iloc[int(own["peak_bytes"].argmax())]))
    lines = [
        f"memory: {at_least}{quantity(float(live.max()), 'B', text)} of tensors alive at {node}"
    ]
    kernels = section.run.kernels if section.run else ()
    arena = [k.arena_peak_bytes for k in kernels if k.arena_peak_bytes is not None]
    if arena:
        lines.append(f"arena: {quantity(max(arena), 'B', text)} in use by the runtime")
    return tuple(lines)


def providers(section: Section) -> tuple[str, ...]:
    """What each provider of onnxruntime ran, where one of them is not the CPU."""
    if section.run is None or not grouping.has_providers(section.run):
        return ()
    placed = grouping.placements(section.run, section.nodes)
    total = sum(each.time_us + each.copies_us for each in placed)
    lines = [_provider(each, total) for each in placed if each.nodes or each.subgraphs]
    copies = sum((each.copies for each in placed), Counter())
    if copies:
        share = percent(sum(each.copies_us for each in placed) / total)
        lines.append(f"copies between providers: {share} of the time, {_count_text(copies)}")
    without = grouping.unplaced(section.nodes)
    if without:
        lines.append(f"in no kernel, folded or removed: {plural(without, 'node')}")
    return tuple(lines)


def _provider(placed: grouping.Placement, total: float) -> str:
    """One provider: its share of the `total` time, its nodes, and its compiled subgraphs."""
    count = sum(placed.nodes.values())
    subgraphs = plural(len(placed.subgraphs), "compiled subgraph")
    known = [str(size) for size in placed.subgraphs if size]
    if not placed.subgraphs:
        what = f"{plural(count, 'node')} ({_count_text(placed.nodes)})"
    elif not known:
        what = f"{subgraphs} whose nodes are not known"
    else:
        sizes = f" of {', '.join(known)} nodes" if len(placed.subgraphs) > 1 else ""
        what = f"{plural(count, 'node')} in {subgraphs}{sizes}"
    where = " on the host" if queues(placed.provider) else ""
    line = f"{short_name(placed.provider)}: {percent(placed.time_us / total)} of the time{where}, "
    if placed.device_us is not None:
        line = f"{line}{duration(placed.device_us)} on the device, "
    return f"{line}{what}"


def _count_text(operators: Counter[str]) -> str:
    named = [f"{count:,} {name}" for name, count in operators.most_common(_NAMED)]
    return ", ".join([*named, "…"] if len(operators) > _NAMED else named)


def _parameters(count: int, text: Text) -> str:
    return f"{text(count)} {agree(count, 'parameter', 'parameters')}"


def _sum(column: pd.Series[Any], what: str, text: Text) -> str:
    missing = int(column.isna().sum())
    if missing and missing == len(column):
        return what.format("unknown")
    count = float(column.sum())
    total = (what.removesuffix("s") if count == 1 else what).format(text(count))
    return f"at least {total}" if missing else total
