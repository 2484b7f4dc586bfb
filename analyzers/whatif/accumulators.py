"""The view of a what-if over accumulators of several kinds: one table, the cheapest first named."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from tracer.analyzers import whatif
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import drawing
from tracer.analyzers.views import page as pages
from tracer.analyzers.views.file_formats.json import fields, records
from tracer.analyzers.views.text import FORMATS, percent, plural, score, si
from tracer.records.whatif import AccumulatorSweep, SweptAccumulator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES, _BAR_INCHES = (8.0, 1.4), 0.28
"""Width of a chart, its height without bars, and the height of a bar."""


def page(result: AccumulatorSweep, options: ViewOptions) -> pages.Page:
    """The answer in words, and a row for each accumulator."""
    rows, unit = table(result, options), result.judgement.unit
    sufficient, cheapest = result.sufficient, result.cheapest
    rows["answer"] = [
        "cheapest" if row is cheapest else "within" if row in sufficient else ""
        for row in result.rows
    ]
    accumulator, operands, scores, sums, *errors, energy = pages.record_columns(
        SweptAccumulator,
        {**FORMATS, "score": lambda value: score(value, unit)},
        metric=whatif.metric(result.judgement),
        unit=result.energy.unit,
    )
    change = "{:+.2f}".format if unit == "%" else "{:+.3g}".format
    columns = (
        accumulator,
        pages.name_column("", "answer", 1),
        operands,
        scores,
        pages.number_column("change", "change", change, 3),
        pages.number_column("overflow", "overflow_share", percent, 5),
        *errors,
        energy,
        pages.number_column("saved", "saved", percent, 10),
        sums,
    )
    title = f"{result.model.name} · {plural(len(result.rows), 'accumulator')}"
    shown = pages.Table(title, columns, rows, head=tuple(_sentences(result)))
    notes = (*result.notes, whatif.basis_text(result.energy))
    return pages.Page((shown,), notes, result.environment.summary)


def table(result: AccumulatorSweep, options: ViewOptions) -> pd.DataFrame:
    """A row for each accumulator, with its change of the score.

    `saved` is the share that it saves of the first known energy.
    """
    rows = pages.record_table(SweptAccumulator, result.rows)
    rows.insert(3, "change", rows["score"] - result.score)
    rows["overflow_share"] = rows["overflow_outputs"] / rows["outputs"].where(rows["outputs"] > 0)
    rows["saved"] = 1 - rows["energy"] / next(iter(rows["energy"].dropna()), math.nan)
    return rows.astype({"outputs": "Int64", "overflow_outputs": "Int64"})


def document(result: AccumulatorSweep, options: ViewOptions) -> dict[str, Any]:
    """Everything that was computed; docs/whatif.md has the fields."""
    cheapest = result.cheapest
    return {
        **fields(result, "model", "environment", "settings", "notes", "judgement", "energy"),
        **fields(result, "score", "samples"),
        "cheapest": None if cheapest is None else cheapest.accumulator,
        "accumulators": records(table(result, options)),
    }


def figure(result: AccumulatorSweep, options: ViewOptions) -> Figure:
    """The score, and the relative error of the sums, by accumulator."""
    width, height = _INCHES
    chart = drawing.empty_figure(width, height + _BAR_INCHES * len(result.rows))
    chart.suptitle(drawing.plain(result.model.name), x=0.01, ha="left", fontsize=10)
    scores, errors = chart.subplots(1, 2, sharey=True)
    sufficient = result.sufficient
    colours = [drawing.PLAIN if row in sufficient else drawing.OTHERS for row in result.rows]
    names = drawing.labels(row.accumulator for row in result.rows)
    scores.barh(range(len(names)), [row.score for row in result.rows], color=colours)
    scores.axvline(result.score, color=drawing.HIGH, linewidth=0.8, linestyle="--")
    scores.set_xlabel(drawing.plain(whatif.metric(result.judgement)), fontsize=8)
    budget = whatif.budget(result.judgement)
    scores.set_title(
        drawing.plain(f"blue: loses at most {budget}; red: as it is"), fontsize=8, loc="left"
    )
    # from the median to the 99th percentile of the relative errors
    ends = [(place, row.rel_error_p50, row.rel_error_p99) for place, row in enumerate(result.rows)]
    shown = [(y, low, high) for y, low, high in ends if high is not None and 0 < high < math.inf]
    for place, low, high in shown:
        errors.plot([low or high, high], [place, place], color=drawing.EXTREMES, linewidth=2)
        errors.plot(high, place, color=drawing.EXTREMES, marker="o", markersize=4)
    if shown:
        errors.set_xscale("log")
    errors.set_xlabel("relative error of sums", fontsize=8)
    errors.set_title("median to 99 % of the sums", fontsize=8, loc="left")
    for axes in (scores, errors):
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    scores.set_yticks(range(len(names)), names, fontsize=8)
    scores.invert_yaxis()
    return chart


def _sentences(result: AccumulatorSweep) -> Iterator[str]:
    judgement = result.judgement
    yield (
        f"The model as it is has {whatif.score(judgement, result.score)} on "
        f"{plural(result.samples, 'sample')} of {result.settings['data']}; the budget is "
        f"{whatif.budget(judgement)}."
    )
    names = ", ".join(row.accumulator for row in result.sufficient)
    cheapest = result.cheapest
    if not names:
        yield "No accumulator is within the budget."
    elif cheapest is None:
        yield f"Within the budget: {names}; {result.energy.model} has no energy for any of them."
    else:
        unknown = [row.accumulator for row in result.sufficient if row.energy is None]
        rest = f"; the energy of {', '.join(unknown)} is unknown" if unknown else ""
        energy = f"{si(cheapest.energy)} {result.energy.unit}"
        yield f"Within the budget: {names}; the cheapest is {cheapest.accumulator}, {energy}{rest}."
