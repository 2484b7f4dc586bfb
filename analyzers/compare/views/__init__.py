"""The views of a Comparison: whole models, then layers, then numbers; a report has a run a side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare import Comparison, Outcome
from tracer.analyzers.compare.contrast import LEVEL
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.compare.views.tables import (
    INTERVAL,
    MARK,
    interval,
    layers_table,
    numbers_table,
    paired_note,
    ratio,
    scores_table,
    subgraph_tables,
    values_check,
)
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.table import DIFFERENCES
from tracer.analyzers.views import environment
from tracer.analyzers.views import page as pages
from tracer.analyzers.views.drawing import empty_figure, labels, plain
from tracer.analyzers.views.file_formats.json import records
from tracer.analyzers.views.report import Content, Pairs, RunContent, drawings, texts
from tracer.analyzers.views.text import count, percent, plural, si, time_number, times
from tracer.analyzers.views.trace.contents import lines, run_content
from tracer.analyzers.views.trace.headline import Section
from tracer.analyzers.views.trace.run_tables import tables
from tracer.records.columns import BY_NAME, ColumnSpec
from tracer.records.trace import INCOMPLETE
from tracer.support.measurements import t_quantile
from tracer.support.types import FloatArray

MOST_GROUPS = 30
COLOURS = ("#4878a8", "#e1812c", "#3a923a", "#9372b2", "#845b53", "#d684bd", "#7f7f7f", "#a8a83a")
WORK = "#bbbbbb"
_FAULTS: Mapping[Outcome, pages.Fault] = {"pass": "", "FAIL": "failure", "undecided": "error"}

_OF_ONE_RUN = ("time_us_p50", "time_us_p95", "time_us_min", "time_us_std")
"""Columns of a single run, which says little of all sessions."""

_LEVEL = 0.05
"""Significance level of the intervals in a node table."""

_SPECS = (
    ColumnSpec("change_us", "Δ µs", 3, "time in the other side less the time in A; none for noise",
               "sum", dtype="float64", unit="µs", format="micros", kind="displayed"),
    ColumnSpec("ratio", "÷ A", 2, "time in the other side ÷ time in A, whether noise or not",
               dtype="float64", unit="", format="times", kind="displayed"),
    ColumnSpec("ratio_interval", INTERVAL, 4, "interval of the ratio",
               dtype="string", unit="", format="name", kind="displayed"),
)  # fmt: skip


def page(result: Comparison, options: ViewOptions) -> pages.Page:
    """The totals of the sides, their scores, then the layers, then the numbers."""
    shown = [_totals_table(result)]
    if result.scores:
        shown.append(scores_table(result.scores))
    if result.layers is not None:
        shown.append(layers_table(result, result.layers))
        shown += subgraph_tables(result)
    shown += [numbers_table(numbers, options) for numbers in result.numbers]
    labels_of: dict[str, list[str]] = {}
    for side in result.sides:
        for note in side.notes:
            labels_of.setdefault(note, []).append(side.label)
    notes = [
        note if len(labelled) == len(result.sides) else f"{', '.join(labelled)}: {note}"
        for note, labelled in labels_of.items()
    ]
    ordered = sorted((*result.notes, *notes), key=lambda note: not note.startswith(INCOMPLETE))
    return pages.Page(tuple(shown), tuple(ordered), result.sides[0].trace.environment.summary)


def table(result: Comparison, options: ViewOptions) -> pd.DataFrame:
    """The layers, or the totals if only totals were compared."""
    rows = result.totals if result.layers is None else result.layers
    return rows.head(options.top) if options.top else rows


def figure(result: Comparison, options: ViewOptions) -> Any:
    """The time of each layer on every side, or the total time of each side."""
    if result.layers is None:
        return draw_totals(result)
    return draw_layers(result, result.layers, options.top or MOST_GROUPS)


def document(result: Comparison, options: ViewOptions) -> dict[str, Any]:
    """All tables, and the sides with their models and sessions."""
    return {
        "by": result.by,
        "level": LEVEL,
        "sides": [
            {
                "letter": letter(index), "label": side.label, "executor": side.run.executor,
                "batch": side.run.batch, "model": side.trace.model,
                "environment": side.trace.environment, "settings": side.trace.settings,
                "sessions_us": None if side.wall.sessions is None else [
                    float(np.median(session)) for session in side.wall.sessions
                ],
                "notes": side.notes,
            }
            for index, side in enumerate(result.sides)
        ],
        "totals": records(result.totals),
        "layers": None if result.layers is None else records(table(result, options)),
        "layer_sums": [{**asdict(each), "agrees": each.agrees} for each in result.sums],
        "numbers": [
            {
                "first": each.first, "second": each.second,
                "rtol": each.tolerance.relative, "atol": each.tolerance.absolute,
                "no_verdict": each.no_verdict, "is_isolated": each.is_isolated,
                "first_divergence": each.first_divergence, "outputs": records(each.outputs),
                "layers": records(each.layers), "notes": each.notes,
            }
            for each in result.numbers
        ],
        "scores": [asdict(each) for each in result.scores],
        "verdicts": [asdict(each) for each in result.verdicts],
        "notes": result.notes,
    }  # fmt: skip


def checks(result: Comparison, options: ViewOptions) -> list[pages.Check]:
    """A test for each gate and side, and for the values of each side.

    Without a gate, the time of a side is a test that passes.
    """
    lines = list(_time_lines(result))
    names = [str(side) for side in result.totals["side"]]
    speed = [pages.Check("time", name, text) for name, text in zip(names[1:], lines, strict=True)]
    if result.verdicts:
        speed = [
            pages.Check("time", f"{each.side} {each.gate}", each.line, _FAULTS[each.outcome])
            for each in result.verdicts
        ]
    return [*speed, *map(values_check, result.numbers)]


def report(result: Comparison, options: ViewOptions) -> Content:
    """The sides as runs A, B and so on, with the ratio of each layer's times."""
    verdicts = (*(verdict.line for verdict in result.verdicts), *_time_lines(result))
    graphs, positions = drawings([side.trace.model for side in result.sides])
    labels = [side.label for side in result.sides]
    title = f"{', '.join(labels[1:])} against {labels[0]}"
    runs = []
    for index, (side, graph) in enumerate(zip(result.sides, positions, strict=True)):
        run = side_run(side, graph, verdicts)
        rows = run.rows.assign(**_changes(result, index), **_differences(result, side))
        runs.append(under_title(replace(run, rows=rows, letter=letter(index).upper()), title))
    others = () if result.layers is None else range(1, len(result.sides))
    return Content(
        title=title,
        kind="compare",
        page=page(result, options),
        runs=tuple(runs),
        graphs=graphs,
        specs=(*_side_specs(len(result.sides)), *_SPECS),
        pairs=tuple(_pairs(result, other) for other in others),
        sources=side_sources(result.sides),
        environment=environment.machine_fields(result.sides[0].trace.environment),
        first={"view": "ratios", "sort": "change_us", "color": "change_us"},
    )


def _totals_table(result: Comparison) -> pages.Table:
    rows = result.totals.assign(
        letter=[letter(index).upper() for index in range(len(result.sides))],
        speed=1 / result.totals["ratio"],
    )
    columns = (
        pages.name_column("", "letter", 0),
        pages.name_column("side", "side", 1),
        pages.number_column("time µs", "time_us", time_number, 2, ("time_us", "error_us")),
        pages.number_column("std err", "error_us", time_number, 8, ("time_us", "error_us")),
        pages.Column("÷ A", "ratio", ratio(), 3),
        pages.Column(INTERVAL, "ratio_low", interval("ratio_low", "ratio_high", times), 4),
        pages.number_column("speed", "speed", times, 9),
        pages.number_column("conv", "convolution_share", percent, 5),
        pages.number_column("backward", "backward_share", percent, 6),
        pages.number_column("MACs", "macs", si, 7),
        pages.number_column("params", "params", si, 10),
        pages.number_column("bytes", "bytes", si, 12),
        pages.number_column("flop/s", "flops_per_s", si, 11),
        pages.number_column("batch", "batch", count, 13),
        pages.name_column("executor", "executor", 14),
    )
    totals = result.totals
    times_us = (totals["time_us"].iloc[0], totals["time_us"], totals["ratio"])
    below = [*_time_lines(result), *paired_note([times_us])]
    known = rows.dropna(subset="params")
    if result.layers is not None and known["params"].nunique() > 1:
        pairs = zip(known["letter"], known["params"], strict=True)
        listing = ", ".join(f"{end} {params:,}" for end, params in pairs)
        below.append(
            f"parameters differ: {listing}; other networks, or some are folded or not used"
        )
    head = tuple(verdict.line for verdict in result.verdicts)
    return pages.Table("Whole runs, without profiler", columns, rows, tuple(below), head=head)


def _time_lines(result: Comparison) -> Iterator[str]:
    records = result.totals.to_dict("records")
    for index, row in enumerate(records[1:], 1):
        who = f"{letter(index).upper()} ({row['side']})"
        if math.isnan(row["ratio_low"]):
            yield f"{who}: too few or too uneven runs for a confidence interval"
            continue
        low, high = (pages.signed_percent(row[end] - 1) for end in ("ratio_low", "ratio_high"))
        span = f"{low} to {high}"
        if row["significant"]:
            slower = row["ratio"] > 1
            factor, way = (row["ratio"], "slower") if slower else (1 / row["ratio"], "faster")
            yield f"{who} is {times(factor)} times {way} than A: {span} of time"
        else:
            yield f"{who}: no significant difference from A ({INTERVAL} {span})"


def side_run(side: Side, graph: int | None, verdicts: Sequence[str]) -> RunContent:
    """Returns what a report shows of a side; its times are those of all its sessions."""
    nodes = side.nodes
    if side.turns_us is not None:
        time, total = side.time_us, float(np.nansum(side.time_us))
        half = _half_interval(side)
        nodes = nodes.assign(
            time_us=time,
            time_share=time / total if total else np.nan,
            time_us_ci95_low=np.maximum(time - half, 0.0),
            time_us_ci95_high=time + half,
            **dict.fromkeys(_OF_ONE_RUN, np.nan),
        )
    section = Section(side.run, side.run.batch, nodes)
    told = lines(tables(side.trace, section, ViewOptions()))
    return run_content(side.trace, section, side.label, (*verdicts, *told), graph)


def _half_interval(side: Side) -> FloatArray:
    """Returns half the confidence interval of each row's time."""
    return t_quantile(_LEVEL, side.dof) * side.error_us if side.dof else np.nan * side.time_us


def under_title(run: RunContent, title: str) -> RunContent:
    """Returns the run under the title of the whole; its own becomes the first line."""
    return replace(run, title=title, lines=(run.title, *run.lines))


def _pairs(result: Comparison, other: int) -> Pairs:
    end, layers = letter(other), result.layers
    assert layers is not None

    def column(name: str) -> tuple[float | None, ...]:
        return tuple(None if pd.isna(value) else float(value) for value in layers[f"{name}_{end}"])

    return Pairs(
        a=0,
        b=other,
        names=tuple(layers[result.by]),
        rows_a=tuple(group.rows[0] for group in result.groups),
        rows_b=tuple(group.rows[other] for group in result.groups),
        ratio=column("ratio"),
        low=column("ratio_low"),
        high=column("ratio_high"),
        p=column("p"),
        significant=tuple(map(bool, layers[f"significant_{end}"])),
    )


def _changes(result: Comparison, index: int) -> Mapping[str, Any]:
    """Returns the times of all sides and the columns of `_SPECS`, in the row with a layer's time.

    The rows of A are compared with B. Rows of modules and operators have none: a row is a part of
    them.
    """
    if result.layers is None or result.by != "layer":
        return {}
    side, end = result.sides[index], letter(index or 1)
    layers, bounds = result.layers, interval(f"ratio_low_{end}", f"ratio_high_{end}", times)
    known: dict[str, pd.Series[Any]] = {
        "change_us": layers[f"change_us_{end}"].where(layers[f"significant_{end}"].astype(bool)),
        "ratio": layers[f"ratio_{end}"],
        "ratio_interval": pd.Series(
            [bounds(row) for row in layers.to_dict("records")], dtype="object"
        ),
    }
    for other, each in enumerate(result.sides):
        known[f"time_us_{letter(other)}"] = layers[f"time_us_{letter(other)}"]
        squares = _half_interval(each) ** 2
        known[f"plus_minus_{letter(other)}"] = pd.Series(
            [np.sqrt(np.nansum(squares[list(group.rows[other])])) for group in result.groups]
        ).replace(0.0, np.nan)
    rows: dict[int, int] = {}  # of this side, by layer
    for layer, group in enumerate(result.groups):
        timed = [row for row in group.rows[index] if not np.isnan(side.time_us[row])]
        rows |= {timed[0]: layer} if timed else {}
    at = pd.Series(rows, dtype="int64")
    return {
        name: pd.Series(values.to_numpy()[at], at.index).reindex(range(len(side.nodes))).to_numpy()
        for name, values in known.items()
    }


def _side_specs(count: int) -> tuple[ColumnSpec, ...]:
    """Returns the times of the sides beside each other, in place of those of one."""
    us = partial(ColumnSpec, dtype="float64", unit="µs", format="micros", kind="displayed")
    own = [replace(BY_NAME[name], header=None) for name in ("time_us", "time_us_plus_minus", "bar")]
    each = [
        spec
        for index in range(count)
        for end in [letter(index)]
        for spec in (
            us(f"time_us_{end}", f"{end.upper()} µs", 1, f"time in {end.upper()}", "sum"),
            us(f"plus_minus_{end}", f"± {end.upper()}", 5, "half the 95 % confidence interval"),
        )
    ]
    return (*own, *each)


def _differences(result: Comparison, side: Side) -> Mapping[str, Any]:
    """Returns the columns of differences in value, for the rows of a side that was compared."""
    for numbers in result.numbers:
        if side.label in (numbers.first, numbers.second):
            key = "layer" if side.label == numbers.first else "layer_b"
            by_node = numbers.layers.drop_duplicates(key).set_index(key)
            if not by_node["max_abs"].gt(0).any():  # columns of zeros would only take room
                return {}
            nodes = side.nodes["node"]
            return {
                column: nodes.map(by_node[name]).astype("float64").to_numpy()
                for column, name in {"difference_own": "own", **DIFFERENCES}.items()
            }
    return {}


def side_sources(sides: Iterable[Side]) -> Mapping[str, str]:
    """Returns the lines of code of the sides' nodes."""
    return texts(place for side in sides for place in side.nodes["source"])


def draw_totals(result: Comparison) -> Any:
    """The figure of the sides as a whole."""
    rows = result.totals
    figure = empty_figure(_INCHES, 1.4 + 0.4 * len(rows))
    axes = figure.subplots()
    convolution = rows["time_us"] * rows["convolution_share"].fillna(0)
    positions = range(len(rows))
    axes.barh(positions, convolution / 1e3, color=COLOURS[0], label="convolution")
    rest = rows["time_us"] - convolution
    axes.barh(positions, rest / 1e3, left=convolution / 1e3, color=WORK, label="the rest")
    for position, row in enumerate(rows.to_dict("records")):
        mark = MARK if row["significant"] else ""
        text = f"{times(row['ratio'])} times A{mark}" if position else ""
        axes.annotate(text, (row["time_us"] / 1e3, position), (3, 0), textcoords="offset points",
                      va="center", fontsize=8)  # fmt: skip
    axes.set_xlabel("time per run [ms]")
    axes.set_xlim(right=1.15 * rows["time_us"].max() / 1e3)
    finish(axes, [str(side) for side in rows["side"]])
    return figure


_INCHES = 9.0
"""Width of a chart."""


def draw_layers(result: Comparison, rows: pd.DataFrame, most: int) -> Any:
    """The figure of the largest changes by layer; layers that no side timed are left out."""
    names = [f"{letter(index).upper()} {side.label}" for index, side in enumerate(result.sides)]
    ends = [letter(index) for index in range(len(names))]
    times_us = rows[[f"time_us_{end}" for end in ends]]
    timed = rows[times_us.gt(0).any(axis=1)]
    rows, rest = timed.head(most), timed.iloc[most:]
    significant = rows[[f"significant_{end}" for end in ends[1:]]].any(axis=1)
    named = rows["layer"] if result.by == "layer" else rows[result.by]
    if result.by == "layer":  # the name of a module that is one layer says more than a node's
        own = ~rows["module"].duplicated(keep=False) & ~rows["module"].str.startswith("(")
        named = named.where(~own, rows["module"])
    pairs = zip(named, significant, strict=True)
    marked_names = [f"{text}{MARK if marked else ''}" for text, marked in pairs]
    figure = empty_figure(_INCHES, bar_inches(len(rows), len(names)))
    axes = figure.subplots()
    draw_bars(axes, dict(zip(names, [rows[f"time_us_{end}"] for end in ends], strict=True)))
    title = f"largest changes first; {MARK} marks a significant difference"
    axes.set_title(title, fontsize=10, loc="left")
    held = " to ".join(f"{rest[f'time_us_{end}'].sum():,.0f}" for end in ends)
    more = f"; {plural(len(rest), 'more layer')}: {held} µs" if len(rest) else ""
    axes.set_xlabel(f"time per run [µs]{more}")
    finish(axes, marked_names)
    return figure


def bar_inches(groups: int, bars: int) -> float:
    """The height of a chart of so many groups of bars beside each other."""
    return min(1.4 + groups * (0.1 + 0.11 * bars), 40.0)


def draw_bars(
    axes: Any, bars: Mapping[str, pd.Series[Any]], colours: Sequence[str] = COLOURS
) -> None:
    """Draws bars of several names below each other."""
    height = 0.8 / len(bars)
    for index, (name, values) in enumerate(bars.items()):
        positions = np.arange(len(values)) + (index - (len(bars) - 1) / 2) * height
        colour = colours[index % len(colours)]
        axes.barh(positions, values.fillna(0), height=height, color=colour, label=plain(name))


def finish(axes: Any, names: Sequence[str]) -> None:
    """Labels the groups of bars, the first above."""
    axes.set_yticks(range(len(names)), labels(names), fontsize=8)
    axes.margins(y=0.01)
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
