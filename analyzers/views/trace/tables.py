"""The tables of a trace on its page, with the lines around them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from tracer.analyzers.advice import advise
from tracer.analyzers.grouping import remark
from tracer.analyzers.options import KERNEL, NAMES, SAMPLE, ViewOptions, sort_column
from tracer.analyzers.views.page import Column, Table, specified
from tracer.analyzers.views.text import full, si
from tracer.analyzers.views.trace import agreement, headline, overflow
from tracer.analyzers.views.trace.sections import Section, chosen, folded, ordered
from tracer.records.columns import JOINT, TableName, specs_of
from tracer.records.trace import Trace

_CALLS_RANK = 3
"""Rank of the calls in the table of kernels, which are called many times each."""


def tables(trace: Trace, section: Section, options: ViewOptions) -> Iterator[Table]:
    """The tables of one run: of times and work, of overflow, or of both."""
    title = headline.headline(trace, section)
    groups = folded(section, options)
    if options.by == SAMPLE:
        yield _of_samples(title, section, groups, options)
        return
    if agreement.has_agreement(groups):
        yield _of_agreement(title, trace, section, groups, options)
        title = ""
    counted = overflow.has_overflow(groups)
    run = section.run
    if counted and run is not None and run.is_emulated:  # its times are of an emulation
        yield _of_sums(title, section, groups, options)
        title, counted = "", False
    yield _of_work(title, trace, section, groups, options, counted)


def _of_work(
    title: str,
    trace: Trace,
    section: Section,
    groups: pd.DataFrame,
    options: ViewOptions,
    counted: bool,
) -> Table:
    """Returns the table of times and work, and of overflow too if it was `counted` elsewhere."""
    head = headline.verdict(section.run, section.nodes) if section.run else ()
    head = (*head, *headline.others(trace, section))
    which: tuple[TableName, ...] = ("work",)
    below: tuple[str, ...] = ()
    if counted:
        head = (*head, *overflow.counted(trace), *overflow.words(section.nodes))
        groups = overflow.described(groups, options.full_numbers)
        which = ("work", "overflow")
        below = overflow.totals(section.nodes, options.full_numbers)
    rows = ordered(groups, options)
    return Table(
        title,
        _columns(rows, which, NAMES[options.by], options),
        rows,
        head=head,
        lines=(*_lines(trace, section, rows, options), *below),
        is_long=True,
        advice=tuple(advice.text for advice in advise(trace, section.run, section.nodes)),
        weight=("time_share", "time") if groups["time_us"].notna().any() else ("macs", "MACs"),
    )


def _of_sums(title: str, section: Section, groups: pd.DataFrame, options: ViewOptions) -> Table:
    return Table(
        title,
        _columns(groups, ("overflow",), NAMES[options.by], options),
        chosen(overflow.worst_first(groups, options.full_numbers), options),
        head=overflow.words(section.nodes),
        lines=overflow.totals(section.nodes, options.full_numbers),
        is_long=True,
    )


def _of_agreement(
    title: str, trace: Trace, section: Section, groups: pd.DataFrame, options: ViewOptions
) -> Table:
    return Table(
        title,
        _columns(groups, ("agreement",), NAMES[options.by], options),
        chosen(agreement.worst_first(groups), options),
        head=tuple(agreement.outputs(trace, section.nodes)),
        lines=(agreement.totals(section.nodes),),
        is_long=True,
    )


def _of_samples(title: str, section: Section, samples: pd.DataFrame, options: ViewOptions) -> Table:
    return Table(
        title,
        _columns(samples, ("overflow",), SAMPLE, options),
        chosen(overflow.worst_first(samples, options.full_numbers), options),
        head=(overflow.of_samples(samples),),
        lines=overflow.totals(section.nodes, options.full_numbers),
        is_long=True,
        weight=("overflow_outputs", "overflows"),
    )


def _lines(
    trace: Trace, section: Section, groups: pd.DataFrame, options: ViewOptions
) -> Iterator[str]:
    if options.sort is not None and not _has_values(groups, options):
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
    return [
        replace(specified(spec, options.full_numbers), rank=ranks.get(spec.name, spec.rank))
        for spec in specs_of(rows.columns)
        if spec.header is not None and (spec.table is None or spec.table in which)
    ]


def _has_values(rows: pd.DataFrame, options: ViewOptions) -> bool:
    name = sort_column(options.sort or "", options.by).name
    return name in rows and bool(rows[name].notna().any())
