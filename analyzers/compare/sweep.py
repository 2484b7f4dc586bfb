"""Batch sizes side by side: what each operator takes per sample and per call, as the work grows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pandas as pd

from analyzers.compare.sides import Side
from analyzers.grouping import by_op
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
    view: ClassVar[str] = "analyzers.compare.views.sweeps"

    def headline(self) -> str:
        """Each model and its batch sizes."""
        return "; ".join(f"{one.label} at batch {', '.join(map(str, one.batches))}" for one in self)


def sweep(label: str, sides: Sequence[Side]) -> Sweep:
    """The sweep of one model, a side for each batch size.

    The table has a row for each operator (or combination of fused ones) at each batch, those with
    most time first, then `(whole run)`, timed without instrument: `op`, `batch`, `time_us` a run,
    `sample_us` (÷ batch), `calls` a run, `call_us`, `share` of the nodes' time, `flops`, `bytes`;
    `time_growth` and `work_growth`, the times and flops (bytes, where there are none) of a run
    divided by those at the smallest batch. Raises InputError for fewer than two batch sizes.
    """
    if len({side.run.batch for side in sides}) < 2 or any(s.run.batch is None for s in sides):
        raise InputError(
            f"{label}: has not two batch sizes to compare",
            "Profile it with several, as in --batch 1,16,64.",
        )
    ordered = tuple(sorted(sides, key=lambda side: side.run.batch or 1))
    folded = pd.concat([_rows(side) for side in ordered], ignore_index=True)
    order = folded.groupby("op")["sample_us"].sum().sort_values(ascending=False, kind="stable")
    place = {op: rank for rank, op in enumerate(order.index) if op != WHOLE}
    folded["place"] = [place.get(op, len(order)) for op in folded["op"]]
    folded = folded.sort_values(["place", "batch"], kind="stable").drop(columns="place")
    return Sweep(label, ordered, _grown(folded.reset_index(drop=True)))


def _rows(side: Side) -> pd.DataFrame:
    folded = by_op(side.nodes.assign(time_us=side.time_us))
    total = float(folded["time_us"].sum())
    moved = (folded["bytes_read"] + folded["bytes_written"]).astype("Float64")
    found = pd.DataFrame(
        {
            "op": folded["op_type"].astype(object),
            "time_us": folded["time_us"].astype("float64"),
            "calls": folded["calls"].astype("float64"),
            "share": folded["time_us"].astype("float64") / total if total else math.nan,
            "flops": folded["flops"].astype("Float64").astype("float64"),
            "bytes": moved.astype("float64"),
        }
    )
    found = found[found["calls"] > 0]
    whole: dict[str, Any] = {
        "op": WHOLE,
        "time_us": side.wall.mean,
        "calls": 1.0,
        "share": math.nan,
        "flops": found["flops"].sum(),
        "bytes": found["bytes"].sum(),
    }
    found = pd.concat([found, pd.DataFrame([whole])], ignore_index=True)
    batch = side.run.batch or 1
    found.insert(1, "batch", batch)
    found.insert(3, "sample_us", found["time_us"] / batch)
    found.insert(5, "call_us", found["time_us"] / found["calls"])
    return found


def _grown(rows: pd.DataFrame) -> pd.DataFrame:
    """With the growth of time and of work from the smallest batch on."""
    smallest = rows["batch"].min()
    first = rows[rows["batch"] == smallest].set_index("op")
    base = {name: rows["op"].map(first[name]) for name in ("time_us", "flops", "bytes")}
    work = (rows["flops"] / base["flops"]).where(base["flops"] > 0, rows["bytes"] / base["bytes"])
    time = (rows["time_us"] / base["time_us"]).where(base["time_us"] > 0)
    return rows.assign(time_growth=time, work_growth=work.where(work > 0))


def wide(one: Sweep) -> pd.DataFrame:
    """A row for each operator, a column for each figure and batch: `sample_us_16`."""
    order = list(dict.fromkeys(one.table["op"]))
    found = one.table.pivot(index="op", columns="batch").loc[order]
    found.columns = found.columns.map(lambda pair: f"{pair[0]}_{pair[1]}")
    return found.reset_index()
