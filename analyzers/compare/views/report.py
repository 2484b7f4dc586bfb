"""What a report shows of a comparison: a run for each side, and the layers that are compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.compare.sweep import Sweeps
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.values import DIFFERENCES
from tracer.analyzers.views import environment
from tracer.analyzers.views.page import Page
from tracer.analyzers.views.report.content import Content, Pairs, RunContent
from tracer.analyzers.views.report.graphs import drawings
from tracer.analyzers.views.report.sources import texts
from tracer.analyzers.views.trace.report import lines
from tracer.analyzers.views.trace.run_content import run_content
from tracer.analyzers.views.trace.sections import Section
from tracer.analyzers.views.trace.tables import tables
from tracer.records.columns import ColumnSpec
from tracer.support.statistics import t_quantile

_OF_ONE_RUN = ("time_us_p50", "time_us_p95", "time_us_min", "time_us_std")
"""Columns of a single run, which says little of all sessions."""

_LEVEL = 0.05
"""Significance level of the intervals in a node table."""

_SPECS = (
    ColumnSpec("change_us", "Δ µs", 2, "time in the other side less the time in A; none for noise",
               "sum", dtype="float64", unit="µs", format="difference", kind="displayed"),
    ColumnSpec("ratio", "÷ A", 3, "time in the other side ÷ time in A, whether noise or not",
               dtype="float64", unit="", format="difference", kind="displayed"),
)  # fmt: skip


def of_comparison(result: Comparison, page: Page, verdicts: Sequence[str]) -> Content:
    """Returns the sides as runs A, B and so on; `verdicts` are in the head of each."""
    graphs, positions = drawings([side.trace.model for side in result.sides])
    others = range(1, len(result.sides))
    labels = [side.label for side in result.sides]
    title = f"{', '.join(labels[1:])} against {labels[0]}"
    runs = []
    for index, (side, graph) in enumerate(zip(result.sides, positions, strict=True)):
        run = _run(side, graph, verdicts)
        rows = run.rows.assign(**_changes(result, index), **_differences(result, side))
        runs.append(_headed(replace(run, rows=rows, letter=letter(index).upper()), title))
    pairs = () if result.layers is None else (_pairs(result, result.layers, i) for i in others)
    return Content(
        title=title,
        kind="compare",
        page=page,
        runs=tuple(runs),
        graphs=graphs,
        specs=_SPECS,
        pairs=tuple(pairs),
        sources=_sources(result.sides),
        environment=environment.told(result.sides[0].trace.environment),
        notes=page.notes,
    )


def of_sweeps(result: Sweeps, page: Page) -> Content:
    """Returns each batch size of each model as a run."""
    sides = [side for one in result for side in one.sides]
    names = [one.label for one in result for _ in one.sides]
    graphs, positions = drawings([side.trace.model for side in sides])
    title = f"{', '.join(dict.fromkeys(names))} at several batch sizes"
    runs = []
    for side, name, graph in zip(sides, names, positions, strict=True):
        batch = f"batch {side.run.batch}"
        label = f"{name} {batch}" if len(result) > 1 else batch
        runs.append(_headed(replace(_run(side, graph, ()), label=label), title))
    return Content(
        title=title,
        kind="compare",
        page=page,
        runs=tuple(runs),
        graphs=graphs,
        sources=_sources(sides),
        environment=environment.told(sides[0].trace.environment),
        notes=page.notes,
    )


def _run(side: Side, graph: int | None, verdicts: Sequence[str]) -> RunContent:
    section = Section(side.run, side.run.batch, _timed(side))
    told = lines(tables(side.trace, section, ViewOptions()))
    return run_content(side.trace, section, side.label, (*verdicts, *told), graph)


def _headed(run: RunContent, title: str) -> RunContent:
    """Returns the run under the title of the whole; its own becomes the first line."""
    return replace(run, title=title, lines=(run.title, *run.lines))


def _timed(side: Side) -> pd.DataFrame:
    """Returns the rows of a side with its own times, which are those of all its sessions."""
    if side.turns_us is None:
        return side.nodes
    time, total = side.time_us, float(np.nansum(side.time_us))
    half = t_quantile(_LEVEL, side.dof) * side.error_us if side.dof else np.nan * time
    return side.nodes.assign(
        time_us=time,
        time_share=time / total if total else np.nan,
        time_us_ci95_low=np.maximum(time - half, 0.0),
        time_us_ci95_high=time + half,
        **dict.fromkeys(_OF_ONE_RUN, np.nan),
    )


def _pairs(result: Comparison, layers: pd.DataFrame, other: int) -> Pairs:
    end = letter(other)

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
    """Returns the columns of `_SPECS` for the rows of a side, in the row with the time of a layer.

    The rows of A have those of B. Rows of modules and operators have none: a row is a part of them.
    """
    if result.layers is None or result.by != "layer":
        return {}
    side, end = result.sides[index], letter(index or 1)
    change, ratio = np.full((2, len(side.nodes)), np.nan)
    columns = [f"{name}_{end}" for name in ("change_us", "ratio", "significant")]
    figures = result.layers[columns].itertuples(index=False)
    for group, (us, times, significant) in zip(result.groups, figures, strict=True):
        timed = [row for row in group.rows[index] if not np.isnan(side.time_us[row])]
        if timed:
            change[timed[0]] = us if significant else np.nan
            ratio[timed[0]] = times
    return {"change_us": change, "ratio": ratio}


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


def _sources(sides: Sequence[Side]) -> Mapping[str, str]:
    return texts(place for side in sides for place in side.nodes["source"])
