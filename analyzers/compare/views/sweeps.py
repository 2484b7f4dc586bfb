"""The view of a batch sweep: a table for each model, its batch sizes side by side."""

from typing import Any

import pandas as pd

from tracer.analyzers.compare.sides import Side
from tracer.analyzers.compare.sweep import Sweep, Sweeps, wide
from tracer.analyzers.compare.views import charts
from tracer.analyzers.compare.views.report import of_sweeps
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import records
from tracer.analyzers.views.page import Column, Page, Table, name_column, number_column, times
from tracer.analyzers.views.report.content import Content
from tracer.analyzers.views.text import micros, percent, plural, quantity


def page(result: Sweeps, options: ViewOptions) -> Page:
    """For each model the times by batch size, then their growth."""
    notes = [
        f"{one.label}: {note}" if len(result) > 1 else note
        for one in result
        for side in one.sides
        for note in side.notes
    ]
    environment = result[0].sides[0].trace.environment
    tables = tuple(table for one in result for table in (_times(one), _growth(one)))
    return Page(tables, tuple(dict.fromkeys(notes)), environment.summary)


def table(result: Sweeps, options: ViewOptions) -> pd.DataFrame:
    """The operators of all models at each batch size; `side` is the model."""
    rows = pd.concat([one.table.assign(side=one.label) for one in result], ignore_index=True)
    rows = rows[["side", *(column for column in rows.columns if column != "side")]]
    return rows.head(options.top) if options.top else rows


def figure(result: Sweeps, options: ViewOptions) -> Any:
    """By model the time of a sample, and the growth of time and work with the batch size."""
    return charts.sweeps(result, options.top)


def document(result: Sweeps, options: ViewOptions) -> dict[str, Any]:
    """`sweeps`: for each model its batch sizes and operators."""
    return {
        "sweeps": [
            {
                "label": one.label,
                "executor": one.sides[0].run.executor,
                "model": one.sides[0].trace.model,
                "environment": one.sides[0].trace.environment,
                "batches": one.batches,
                "notes": tuple(dict.fromkeys(note for side in one.sides for note in side.notes)),
                "operators": records(one.table),
            }
            for one in result
        ]
    }


def report(result: Sweeps, options: ViewOptions) -> Content:
    """Each batch size of each model as a run."""
    return of_sweeps(result, page(result, options))


def _times(one: Sweep) -> Table:
    sizes = one.batches
    counts = {plural(len(side.run.instrumented_us), _counted(side)): None for side in one.sides}
    columns: list[Column] = [name_column("op", "op", 0)]
    ranks = iter(range(1, 100))
    samples = [
        number_column(f"µs/sample @{n}", f"sample_us_{n}", micros, next(ranks)) for n in sizes
    ]
    calls = [number_column(f"µs/call @{n}", f"call_us_{n}", micros, next(ranks)) for n in sizes]
    shares = [number_column(f"share @{n}", f"share_{n}", percent, next(ranks)) for n in sizes]
    executor = one.sides[0].run.executor
    title = f"{one.label} · {executor} · {' and '.join(counts)}"
    return Table(title, [*columns, *samples, *calls, *shares], wide(one), is_long=True)


def _counted(side: Side) -> str:
    return "run" if side.turns_us is None else "session"


def _growth(one: Sweep) -> Table:
    """Returns the growth of time and work; a larger batch pays off if time grows less than work."""
    sizes = one.batches
    columns: list[Column] = [name_column("op", "op", 0)]
    ranks = iter(range(1, 100))
    for size in sizes[1:]:
        columns.append(number_column(f"time to @{size}", f"time_growth_{size}", times, next(ranks)))
        columns.append(number_column(f"work to @{size}", f"work_growth_{size}", times, next(ranks)))
    columns += [
        number_column(
            f"bytes @{size}", f"bytes_{size}", lambda value: quantity(value, "B"), next(ranks)
        )
        for size in sizes
    ]
    title = f"{one.label} · growth of a run's time and work from batch {sizes[0]} on"
    return Table(title, columns, wide(one), is_long=True)
