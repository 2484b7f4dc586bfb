"""What a rule sees, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from analyzers.grouping import by_node
from analyzers.views.text import printable
from tracer.records.environment import Peaks
from tracer.records.trace import Kernel, Run, Trace

_SURE = 0.5
"""Of a time, the least that the lower end of its interval is, and of the reported time the least
that is left without the profiler's cost, for the time to prove anything."""
_NAMED = 2

Figures = Mapping[str, float | str | None]


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of advice: the rule, what it says, of which nodes, and the figures it rests on.

    `time_share` is the part of the nodes' time that it is about.
    """

    rule: str
    text: str
    time_share: float
    nodes: tuple[str, ...]
    figures: Figures


@dataclass(frozen=True)
class Evidence:
    """One run: `rows` as `analyzers.grouping.by_node` folds them, those that took time alone.

    `peaks` are None where they were measured while other programs ran: too low, they would make
    kernels seem near the roof.
    """

    rows: pd.DataFrame
    run: Run
    peaks: Peaks | None
    optimization: str

    @classmethod
    def of(cls, trace: Trace, run: Run, nodes: pd.DataFrame) -> Evidence:
        """The evidence of one run of a trace, whose rows `nodes` are."""
        rows = by_node(nodes)
        rows = rows[rows["time_us"] > 0].sort_values("time_us", ascending=False, kind="stable")
        peaks = trace.environment.peaks
        sound = peaks if peaks is not None and not peaks.is_busy else None
        return cls(rows, run, sound, str(trace.settings.get("optimization", "all")))

    @property
    def sure(self) -> pd.DataFrame:
        """The rows whose time is known well enough to say something of one of them."""
        return self.rows[is_sure(self.rows)]

    def row_of(self, kernel: Kernel) -> pd.DataFrame:
        """The row of a kernel that shares it with no other kernel; empty where there is none."""
        return self.rows[self.rows["kernels"] == kernel.name]


def is_sure(rows: pd.DataFrame) -> pd.Series[bool]:
    """Whether the time of each row is known well enough to prove anything."""
    narrow = rows["time_us_ci95_low"] >= _SURE * rows["time_us"]
    return narrow & (rows["time_us"] >= _SURE * rows["time_us_raw"])


def named(rows: pd.DataFrame) -> str:
    """`conv1, conv2 and 3 more`."""
    names = [printable(str(name)) for name in rows["node"]]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def mean(rows: pd.DataFrame, column: str) -> float:
    """The mean of a rate over the time of rows."""
    return float((rows[column] * rows["time_us"]).sum() / rows["time_us"].sum())


def keys(rows: pd.DataFrame) -> tuple[str, ...]:
    """The nodes of rows."""
    return tuple(map(str, rows["node"]))
