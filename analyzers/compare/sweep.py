"""Compare batch sizes: time of each operator per sample and per call, and growth with the work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pandas as pd

from tracer.analyzers.compare.sides import Side
from tracer.analyzers.grouping import by_op
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
    view: ClassVar[str] = "tracer.analyzers.compare.views.sweeps"

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
    return Sweep(label, ordered, _with_growth(folded.reset_index(drop=True)))


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


def _with_growth(rows: pd.DataFrame) -> pd.DataFrame:
    smallest = rows["batch"].min()
    first = rows[rows["batch"] == smallest].set_index("op")
    base = {name: rows["op"].map(first[name]) for name in ("time_us", "flops", "bytes")}
    work = (rows["flops"] / base["flops"]).where(base["flops"] > 0, rows["bytes"] / base["bytes"])
    time = (rows["time_us"] / base["time_us"]).where(base["time_us"] > 0)
    return rows.assign(time_growth=time, work_growth=work.where(work > 0))


def wide(one: Sweep) -> pd.DataFrame:
    """Returns a row for each operator, a column for each figure and batch: `sample_us_16`."""
    order = list(dict.fromkeys(one.table["op"]))
    by_batch = one.table.pivot(index="op", columns="batch").loc[order]
    by_batch.columns = by_batch.columns.map(lambda pair: f"{pair[0]}_{pair[1]}")
    return by_batch.reset_index()
