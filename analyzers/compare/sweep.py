"""Compare batch sizes: time of each operator per sample and per call, and growth with the work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pandas as pd

from tracer.analyzers.compare import views
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.grouping import by_op
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import environment
from tracer.analyzers.views.drawing import empty_figure, plain
from tracer.analyzers.views.file_formats.json import records
from tracer.analyzers.views.page import Column, Page, Table, name_column, number_column
from tracer.analyzers.views.report import Content, drawings
from tracer.analyzers.views.text import percent, plural, quantity, time_number, times
from tracer.errors import InputError
from tracer.records.result import Result

WHOLE = "(whole run)"


@dataclass(frozen=True, slots=True)
class Sweep:
    """One model at several batch sizes, the smallest first; see `sweep` for the table's columns."""

    label: str
    sides: tuple[Side, ...]
    table: pd.DataFrame = field(repr=False)

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes."""
        return tuple(side.run.batch or 1 for side in self.sides)


class Sweeps(Result, tuple[Sweep, ...]):
    """The sweeps of one or more models."""

    __slots__ = ()
    view: ClassVar[str] = "tracer.analyzers.compare.sweep"

    @property
    def is_incomplete(self) -> bool:
        """Whether the runs of any model were broken off."""
        return any(side.is_incomplete for one in self for side in one.sides)

    def headline(self) -> str:
        """Each model and its batch sizes."""
        return "; ".join(f"{one.label} at batch {', '.join(map(str, one.batches))}" for one in self)


def sweep(label: str, sides: Sequence[Side]) -> Sweep:
    """Returns the sweep of one model, a side for each batch size.

    The table has a row for each operator (or combination of fused operators) and batch, the slowest
    first, then `(whole run)`, timed without profiler: `op`, `batch`, `time_us` per run, `sample_us`
    (÷ batch), `calls` per run, `call_us`, `share` of the nodes' time, `flops`, `bytes`;
    `time_growth` and `work_growth` are time and flops (bytes, without flops) of a run ÷ their
    values at the smallest batch. Raises InputError for fewer than two batch sizes.
    """
    if len({side.run.batch for side in sides}) < 2 or any(s.run.batch is None for s in sides):
        raise InputError(
            f"{label}: has fewer than two batch sizes to compare",
            "Profile it with several, as in --batch 1,16,64.",
        )
    ordered = tuple(sorted(sides, key=lambda side: side.run.batch or 1))
    folded = pd.concat([_rows(side) for side in ordered], ignore_index=True)
    order = folded.groupby("op")["sample_us"].sum().sort_values(ascending=False, kind="stable")
    ranks = {op: rank for rank, op in enumerate(order.index) if op != WHOLE}
    folded["rank"] = [ranks.get(op, len(order)) for op in folded["op"]]
    folded = folded.sort_values(["rank", "batch"], kind="stable").drop(columns="rank")
    rows = folded.reset_index(drop=True)
    smallest = rows["batch"].min()
    first = rows[rows["batch"] == smallest].set_index("op")
    base = {name: rows["op"].map(first[name]) for name in ("time_us", "flops", "bytes")}
    work = (rows["flops"] / base["flops"]).where(base["flops"] > 0, rows["bytes"] / base["bytes"])
    time = (rows["time_us"] / base["time_us"]).where(base["time_us"] > 0)
    return Sweep(label, ordered, rows.assign(time_growth=time, work_growth=work.where(work > 0)))


def _rows(side: Side) -> pd.DataFrame:
    folded = by_op(side.nodes.assign(time_us=side.time_us))
    total = float(folded["time_us"].sum())
    moved = (folded["bytes_read"] + folded["bytes_written"]).astype("Float64")
    rows = pd.DataFrame(
        {
            "op": folded["op_type"].astype(object),
            "time_us": folded["time_us"].astype("float64"),
            "calls": folded["calls"].astype("float64"),
            "share": folded["time_us"].astype("float64") / total if total else math.nan,
            "flops": folded["flops"].astype("Float64").astype("float64"),
            "bytes": moved.astype("float64"),
        }
    )
    rows = rows[rows["calls"] > 0]
    run: dict[str, Any] = {
        "op": WHOLE,
        "time_us": side.wall.mean,
        "calls": 1.0,
        "share": math.nan,
        "flops": rows["flops"].sum(),
        "bytes": rows["bytes"].sum(),
    }
    rows = pd.concat([rows, pd.DataFrame([run])], ignore_index=True)
    batch = side.run.batch or 1
    rows.insert(1, "batch", batch)
    rows.insert(3, "sample_us", rows["time_us"] / batch)
    rows.insert(5, "call_us", rows["time_us"] / rows["calls"])
    return rows


def wide(one: Sweep) -> pd.DataFrame:
    """Returns a row for each operator, a column for each figure and batch: `sample_us_16`."""
    order = list(dict.fromkeys(one.table["op"]))
    by_batch = one.table.pivot(index="op", columns="batch").loc[order]
    by_batch.columns = by_batch.columns.map(lambda pair: f"{pair[0]}_{pair[1]}")
    return by_batch.reset_index()


def page(result: Sweeps, options: ViewOptions) -> Page:
    """For each model the times by batch size, then their growth."""
    notes = [
        f"{one.label}: {note}" if len(result) > 1 else note
        for one in result
        for side in one.sides
        for note in side.notes
    ]
    summary = result[0].sides[0].trace.environment.summary
    tables = tuple(table for one in result for table in (_times(one), _growth(one)))
    return Page(tables, tuple(dict.fromkeys(notes)), summary)


def table(result: Sweeps, options: ViewOptions) -> pd.DataFrame:
    """The operators of all models at each batch size; `side` is the model."""
    rows = pd.concat([one.table.assign(side=one.label) for one in result], ignore_index=True)
    rows = rows[["side", *(column for column in rows.columns if column != "side")]]
    return rows.head(options.top) if options.top else rows


def figure(result: Sweeps, options: ViewOptions) -> Any:
    """By model the time of a sample, and the growth of time and work with the batch size."""
    most = options.top or views.MOST_GROUPS
    shown = [wide(one) for one in result]
    widest = max(min(len(rows), most) for rows in shown)
    bars = max(2, *(len(one.batches) for one in result))
    drawn = empty_figure(12.0, views.bar_inches(widest, bars) * len(result))
    panels = drawn.subplots(len(result), 2, squeeze=False)
    for (left, right), one, rows in zip(panels, result, shown, strict=True):
        kept = rows[rows["op"] != WHOLE].head(most)
        sizes, last = one.batches, one.batches[-1]
        views.draw_bars(left, {f"batch {n}": kept[f"sample_us_{n}"] for n in sizes})
        left.set_xlabel("time per sample [µs]")
        left.set_title(plain(one.label), fontsize=10, loc="left")
        both = rows.head(most) if len(rows) <= most else kept
        growth = {"time": both[f"time_growth_{last}"], "work": both[f"work_growth_{last}"]}
        views.draw_bars(right, growth, (views.COLOURS[0], views.WORK))
        right.set_xlabel(f"growth from batch {sizes[0]} to {last} [times]")
        right.axvline(last / sizes[0], color="#555555", linewidth=0.8, linestyle="--",
                      label="as much as the batch")  # fmt: skip
        views.finish(left, list(kept["op"]))
        views.finish(right, list(both["op"]))
    return drawn


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
    sides = [side for one in result for side in one.sides]
    names = [one.label for one in result for _ in one.sides]
    graphs, positions = drawings([side.trace.model for side in sides])
    title = f"{', '.join(dict.fromkeys(names))} at several batch sizes"
    runs = []
    for side, name, graph in zip(sides, names, positions, strict=True):
        batch = f"batch {side.run.batch}"
        label = f"{name} {batch}" if len(result) > 1 else batch
        runs.append(views.under_title(replace(views.side_run(side, graph, ()), label=label), title))
    return Content(
        title=title,
        kind="compare",
        page=page(result, options),
        runs=tuple(runs),
        graphs=graphs,
        sources=views.side_sources(sides),
        environment=environment.machine_fields(sides[0].trace.environment),
    )


def _times(one: Sweep) -> Table:
    sizes = one.batches
    counts = {
        plural(len(s.run.instrumented_us), "run" if s.turns_us is None else "session"): None
        for s in one.sides
    }
    columns: list[Column] = [name_column("op", "op", 0)]
    ranks = iter(range(1, 100))
    for what in ("sample", "call"):
        fields = tuple(f"{what}_us_{n}" for n in sizes)
        columns += [
            number_column(f"µs/{what} @{n}", field, time_number, next(ranks), fields)
            for n, field in zip(sizes, fields, strict=True)
        ]
    columns += [number_column(f"share @{n}", f"share_{n}", percent, next(ranks)) for n in sizes]
    executor = one.sides[0].run.executor
    title = f"{one.label} · {executor} · {' and '.join(counts)}"
    return Table(title, columns, wide(one), is_long=True)


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
