"""The page of a sweep: a table for each model, its batch sizes side by side."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analyzers.compare.sides import Side
from analyzers.compare.sweep import Sweep
from analyzers.views._columns import Column
from analyzers.views._format import micros, percent, plural, quantity
from analyzers.views._page import Page, Table, figure, name, times


def page(result: Sequence[Sweep]) -> Page:
    """Everything there is to say of some sweeps."""
    notes = [
        f"{one.label}: {note}" if len(result) > 1 else note
        for one in result
        for side in one.sides
        for note in (side.trace.notes if side.rounds_us is None else side.run.notes)
    ]
    environment = result[0].sides[0].trace.environment
    tables = tuple(table for one in result for table in (_times(one), _growth(one)))
    return Page(tables, tuple(dict.fromkeys(notes)), environment.summary)


def wide(one: Sweep) -> pd.DataFrame:
    """A row for each operator, a column for each figure and batch: `sample_us_16`."""
    order = list(dict.fromkeys(one.table["op"]))
    found = one.table.pivot(index="op", columns="batch").loc[order]
    found.columns = found.columns.map(lambda pair: f"{pair[0]}_{pair[1]}")
    return found.reset_index()


def _times(one: Sweep) -> Table:
    sizes = one.batches
    counts = {plural(len(side.run.instrumented_us), _counted(side)): None for side in one.sides}
    columns: list[Column] = [name("op", "op", 0)]
    ranks = iter(range(1, 100))
    samples = [figure(f"µs/sample @{n}", f"sample_us_{n}", micros, next(ranks)) for n in sizes]
    calls = [figure(f"µs/call @{n}", f"call_us_{n}", micros, next(ranks)) for n in sizes]
    shares = [figure(f"share @{n}", f"share_{n}", percent, next(ranks)) for n in sizes]
    executor = one.sides[0].run.executor
    title = f"{one.label} · {executor} · {' and '.join(counts)}"
    return Table(title, [*columns, *samples, *calls, *shares], wide(one), is_long=True)


def _counted(side: Side) -> str:
    return "run" if side.rounds_us is None else "round"


def _growth(one: Sweep) -> Table:
    """How time and work grow; where time grows less than work, the batch pays."""
    sizes = one.batches
    columns: list[Column] = [name("op", "op", 0)]
    ranks = iter(range(1, 100))
    for size in sizes[1:]:
        columns.append(figure(f"time to @{size}", f"time_growth_{size}", times, next(ranks)))
        columns.append(figure(f"work to @{size}", f"work_growth_{size}", times, next(ranks)))
    columns += [
        figure(f"bytes @{size}", f"bytes_{size}", lambda value: quantity(value, "B"), next(ranks))
        for size in sizes
    ]
    title = f"{one.label} · growth of a run's time and work from batch {sizes[0]} on"
    return Table(title, columns, wide(one), is_long=True)
