"""The tables of a trace on its page, its agreement with a reference, and its rows with times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from tracer.analyzers.advice import advise
from tracer.analyzers.grouping import remark
from tracer.analyzers.options import KERNEL, NAMES, SAMPLE, ViewOptions, sort_column
from tracer.analyzers.table import origins
from tracer.analyzers.views.page import Column, Table, specified
from tracer.analyzers.views.text import cosine, digits, full, plural, si
from tracer.analyzers.views.trace import headline, overflow
from tracer.analyzers.views.trace.headline import Section, chosen, folded, sections
from tracer.errors import UsageError
from tracer.records.columns import JOINT, TableName, specs_of
from tracer.records.trace import Run, Trace
from tracer.text import agree, printable

if TYPE_CHECKING:
    from tracer.analyzers.views.exchange import Value
    from tracer.support.tolerance import Tolerance

_MAIN_RANK = 8
"""Rank of the last column that a terminal of 100 cells has room for."""

_CALLS_RANK = 3
"""Rank of the calls in the table of kernels, which are called many times each."""


def tables(trace: Trace, section: Section, options: ViewOptions) -> Iterator[Table]:
    """The tables of one run: of times and work, of overflow, or of both."""
    title = headline.headline(trace, section)
    groups = folded(section, options)
    if options.by == SAMPLE:
        yield Table(
            title,
            _columns(groups, ("overflow",), SAMPLE, options),
            chosen(overflow.worst_first(groups, options.full_numbers), options),
            head=(overflow.of_samples(groups),),
            lines=overflow.sums_totals(section.nodes, options.full_numbers),
            is_long=True,
            weight=("overflow_outputs", "overflows"),
        )
        return
    if has_agreement(groups):
        yield Table(
            title,
            _columns(groups, ("agreement",), NAMES[options.by], options),
            chosen(worst_first(groups), options),
            head=tuple(outputs(trace, section.nodes)),
            lines=(totals(section.nodes),),
            is_long=True,
        )
        title = ""
    counted = overflow.has_overflow(groups)
    run = section.run
    if counted and run is not None and run.is_emulated:  # its times are of an emulation
        yield Table(
            title,
            _columns(groups, ("overflow",), NAMES[options.by], options),
            chosen(overflow.worst_first(groups, options.full_numbers), options),
            head=overflow.sums_words(section.nodes),
            lines=overflow.sums_totals(section.nodes, options.full_numbers),
            is_long=True,
        )
        title, counted = "", False
    # The table of times and work, and of overflow too if it was counted elsewhere.
    head = headline.verdict(section.run, section.nodes) if section.run else ()
    head = (*head, *headline.other_columns(trace, section))
    which: tuple[TableName, ...] = ("work",)
    below: tuple[str, ...] = ()
    if counted:
        head = (*head, *overflow.counted(trace), *overflow.sums_words(section.nodes))
        groups = overflow.sums_text(groups, options.full_numbers)
        which = ("work", "overflow")
        below = overflow.sums_totals(section.nodes, options.full_numbers)
    rows = headline.ordered(groups, options)
    yield Table(
        title,
        _columns(rows, which, NAMES[options.by], options),
        rows,
        head=head,
        lines=(*_lines(trace, section, rows, options), *below),
        is_long=True,
        advice=tuple(advice.text for advice in advise(trace, section.run, section.nodes)),
        weight=("time_us", "time") if groups["time_us"].notna().any() else ("macs", "MACs"),
    )


def top(trace: Trace, options: ViewOptions) -> pd.DataFrame:
    """Returns the first rows of each run, in the main columns that have values."""
    shown = []
    for section in sections(trace):
        rows = headline.ordered(folded(section, options), options).iloc[: options.top or None]
        shown.append(rows.assign(**section.key) if len(sections(trace)) > 1 else rows)
    every = pd.concat(shown, ignore_index=True)
    specs = [s for s in specs_of(every.columns) if s.header and s.rank <= _MAIN_RANK]
    keys = [name for name in Run.KEY if len(shown) > 1 and every[name].nunique() > 1]
    names = [s.name for s in specs if s.name in every and every[s.name].notna().any()]
    return every[[NAMES[options.by], *keys, *(n for n in names if n != NAMES[options.by])]]


def _lines(
    trace: Trace, section: Section, groups: pd.DataFrame, options: ViewOptions
) -> Iterator[str]:
    if options.sort is not None:
        name = sort_column(options.sort, options.by).name
        if name not in groups or not groups[name].notna().any():
            yield f"no row has a value of {options.sort}, so the rows are in their usual order"
    others = remark(groups, options.by)
    if others:
        yield others
    text = full if options.full_numbers else si
    yield headline.totals(trace, section.nodes, text)
    yield from headline.energy(trace, section.nodes)
    yield from headline.memory(section, text)
    yield from headline.providers(section)
    threads = section.run.threads if section.run else None
    yield from headline.roofs(trace.environment.peaks_at(threads))


def _columns(
    rows: pd.DataFrame, which: Sequence[TableName], named: str, options: ViewOptions
) -> list[Column]:
    """Returns the columns of one table; the column that names the rows gets room first."""
    first = JOINT if len(which) > 1 else ()
    ranks = {name: rank - len(first) for rank, name in enumerate(first)} | {named: -len(JOINT)}
    if options.by == KERNEL:
        ranks["calls"] = _CALLS_RANK
    specs = [spec for spec in specs_of(rows.columns) if spec.header is not None]
    if "time_us_host" in rows and rows["time_us_host"].notna().any():
        of_card = {"time_us": "card µs", "time_us_raw": None}  # of which nothing is subtracted
        specs = [replace(spec, header=of_card.get(spec.name, spec.header)) for spec in specs]
    return [
        replace(specified(spec, options.full_numbers), rank=ranks.get(spec.name, spec.rank))
        for spec in specs
        if spec.header is not None and (spec.table is None or spec.table in which)
    ]


def has_agreement(nodes: pd.DataFrame) -> bool:
    """Whether the values of any node of a node table were compared."""
    return "difference_max" in nodes and bool(nodes["difference_max"].notna().any())


def worst_first(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with errors: the largest errors of a node's own first, then the largest errors."""
    compared = rows[rows["difference_max"].notna()]
    return compared.sort_values(
        ["difference_own", "difference_max"], ascending=False, kind="stable", na_position="last"
    )


def outputs(trace: Trace, nodes: pd.DataFrame) -> Iterator[str]:
    """A line for the outputs of the model that a compared node computes: its worst differences."""
    topology = trace.model.topology
    if topology is None:
        return
    columns = ["difference_max", "difference_rms", "difference_cosine"]
    compared = nodes.drop_duplicates("node").set_index("node")[columns].dropna(subset=columns[:1])
    errors = dict(zip(compared.index, compared.to_numpy(float).tolist(), strict=True))
    names = defaultdict[str, list[str]](list)  # of outputs, by the node that computes them
    for name, maker in topology.outputs.items():
        names["" if maker is None else topology.nodes[maker]].append(printable(name))
    for key, computed in names.items():
        if key in errors:
            largest, rms, angle = errors[key]
            direction = cosine(angle) and f", cosine {cosine(angle)}"
            yield (
                f"{agree(len(computed), 'output', 'outputs')} {', '.join(computed)}: error at most "
                f"{digits(largest)} of the largest value, RMS error {digits(rms)}{direction}"
            )


def verdict(run: Run, tolerance: Tolerance) -> tuple[str, bool]:
    """Returns in words whether a run agrees with its reference, and whether it does.

    A node disagrees if it is out of tolerance on the values of the reference. Rounding that adds up
    from node to node is no disagreement, unless a relative tolerance was asked for.
    """
    op_types = {kernel.node: kernel.op_type for kernel in run.kernels}
    wrong = origins(run.values)
    beyond = [each for each in run.values if each.difference and each.difference.fault]
    if wrong:
        which = f"'{printable(wrong[0].node)}' ({op_types[wrong[0].node]})"
        fault = wrong[0].own.fault if wrong[0].own else ""
        others = "" if len(wrong) == 1 else f" (and {len(wrong) - 1:,} more)"
        return f"{which} is out of tolerance on the values of the reference: {fault}{others}", False
    if beyond:
        first = beyond[0]
        fault = first.difference.fault if first.difference else ""
        return (
            "every node is within tolerance on the values of the reference; rounding adds up to "
            f"more in {plural(len(beyond), 'node')}, first in '{printable(first.node)}' "
            f"({op_types[first.node]}): {fault}"
        ), tolerance.relative is None
    return "every node is within tolerance", True


def totals(nodes: pd.DataFrame) -> str:
    """How many nodes were compared, and how many are equal."""
    compared = nodes[nodes["difference_max"].notna()]
    same = int((compared["difference_max"] == 0).sum())
    exact = int((compared["difference_own"] == 0).sum())
    return (
        f"{plural(len(compared), 'node')} compared: {same:,} equal the reference, {exact:,} do on "
        "its values (own error)"
    )


DEEPEST = 64
"""Most levels of modules that are kept apart; viewers refuse stacks of some hundred levels."""

_INFINITE = (float("inf"), float("-inf"))

SHOWN = (
    "node", "op_type", "module", "source", "input_shapes", "output_shapes", "calls", "time_us",
    "time_us_ci95_low", "time_us_ci95_high", "time_share", "macs", "flops", "params", "bytes_read",
    "bytes_written", "gflops_per_s", "gbytes_per_s", "roof_fraction", "bound", "peak_bytes",
    "bits_observed", "bits_guaranteed", "bits", "overflow_outputs", "energy", "kernels",
)  # fmt: skip
"""Columns of the node table that viewers show beside a node."""


@dataclass(frozen=True, slots=True)
class TimedRow:
    """A row with a time in µs: its module as a path of names, and the values to show beside it."""

    name: str
    path: tuple[str, ...]
    time_us: float
    kernels: tuple[str, ...]
    values: Mapping[str, Value]


def timed(trace: Trace, what: str) -> tuple[tuple[Section, Run], ...]:
    """Returns the runs that have times, with their rows. Raises UsageError if there is none."""
    every = [(section, section.run) for section in sections(trace) if section.run is not None]
    having = [(s, run) for s, run in every if s.nodes["time_us"].notna().any()]
    if not having:
        raise UsageError(
            f"{what} needs times, and this trace has none",
            "tracer profile MODEL.onnx -o run.trace makes one, unless every node is computed "
            "when the runtime loads the model.",
        )
    return tuple(having)


def rows_with_times(section: Section, run: Run) -> list[TimedRow]:
    """Returns the rows with a time, in the order in which their kernels ran."""
    nodes = in_graph_order(section.nodes, run)
    others = nodes[nodes["timed_in"].notna()]
    held: dict[str, list[str]] = {}
    for name, host in zip(others["node"], others["timed_in"], strict=True):
        held.setdefault(host, []).append(name)
    fused = {host: ", ".join(names) for host, names in held.items()}
    timed_rows = []
    for values in present(nodes[nodes["time_us"].notna()], SHOWN):
        name, module, time_us = str(values["node"]), values.get("module"), values["time_us"]
        path = module_path(None if module is None else str(module))
        kernels = tuple(str(values.get("kernels", "")).split("; "))
        if name in fused:
            values["also holds"] = fused[name]
        timed_rows.append(TimedRow(name, path, float(time_us), kernels, values))
    return timed_rows


def in_graph_order(nodes: pd.DataFrame, run: Run | None) -> pd.DataFrame:
    """Returns rows in the order in which their kernels ran; others stay where they are."""
    kernels = () if run is None else run.kernels
    place = {kernel.name: place for place, kernel in reversed([*enumerate(kernels)])}
    firsts = nodes["kernels"].fillna("").str.split("; ").str[0].map(place).astype("float64")
    return nodes.loc[firsts.ffill().fillna(-1).sort_values(kind="stable").index]


def present(rows: pd.DataFrame, names: tuple[str, ...]) -> Iterator[dict[str, Value]]:
    """Yields the values that each row has in these columns, as plain Python values.

    Infinities are left out like missing values, for few formats can hold them.
    """
    columns = {name: rows[name] for name in names if name in rows}
    known = [(series.notna() & ~series.isin(_INFINITE)).tolist() for series in columns.values()]
    values = [series.astype(object).tolist() for series in columns.values()]
    for has, cells in zip(zip(*known, strict=True), zip(*values, strict=True), strict=True):
        yield {
            name: cell for name, is_known, cell in zip(columns, has, cells, strict=True) if is_known
        }


def module_path(module: str | None) -> tuple[str, ...]:
    """Returns the names of a dotted module path, outermost first; the deepest stay together."""
    return tuple(module.split(".", DEEPEST - 1)) if module else ()
