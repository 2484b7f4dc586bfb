"""The evidence that a rule examines, and the advice that it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from analyzers.grouping import by_node
from tracer.records.environment import Peaks
from tracer.records.trace import Kernel, Run, Trace
from tracer.text import brief

_SURE = 0.5
"""A time is reliable if the lower end of its interval is at least this share of it, and it is at
least this share of the time before the overhead is subtracted."""
_NAMED = 2
_LEAST_LEFT = 0.01
"""Share of the time that is left at least: a speed-up beyond 100 is no estimate."""
_LEAST_TOLD, _ROUNDED = 0.001, 0.1

Figures = Mapping[str, float | str | None]


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of advice: its rule, text, nodes and figures.

    `time_share` is the share of these nodes in the node time, `energy_share` in the energy. `tune`
    are changes of `tracer tune` that would check the advice, and `at_most` is the greatest speed-up
    that the roofline leaves room for; None if the roofs are not known.
    """

    rule: str
    text: str
    time_share: float
    nodes: tuple[str, ...]
    figures: Figures
    energy_share: float = 0.0
    tune: tuple[str, ...] = ()
    at_most: float | None = None

    @property
    def weight(self) -> float:
        """What the advice is about, as a share of the whole."""
        return max(self.time_share, self.energy_share)


@dataclass(frozen=True)
class Evidence:
    """One run, and its `rows` with a time, folded by `analyzers.grouping.by_node`.

    `sums` are the folded rows whose sums were counted and whose energy is known, with
    `energy_share`, their share of the energy.
    `peaks` are None if other programs ran while they were measured: peaks that are too low make
    kernels seem near the roof.
    """

    rows: pd.DataFrame
    sums: pd.DataFrame
    run: Run
    peaks: Peaks | None
    optimization: str
    cpus: int
    flags: frozenset[str]

    @classmethod
    def of(cls, trace: Trace, run: Run, nodes: pd.DataFrame) -> Evidence:
        """Returns the evidence of one run of a trace; `nodes` are its rows."""
        folded = by_node(nodes)
        sums = folded.assign(energy_share=folded["energy"] / folded["energy"].sum())
        sums = sums[sums["outputs"].notna() & sums["energy_share"].notna()]
        rows = folded[folded["time_us"] > 0].sort_values("time_us", ascending=False, kind="stable")
        peaks = trace.environment.peaks_at(run.threads)
        reliable = peaks if peaks is not None and not peaks.is_busy else None
        machine = trace.environment
        return cls(
            rows, sums, run, reliable, run.optimization or "all", machine.cpu_count,
            frozenset(machine.cpu_flags),
        )  # fmt: skip

    @property
    def sure(self) -> pd.DataFrame:
        """The rows with a reliable time."""
        return self.rows[is_sure(self.rows)]

    def at_most(self, rows: pd.DataFrame, factor: float = 1.0) -> float | None:
        """Returns the speed-up if `rows` took the least time by the roofs, times `factor`.

        Rows without work would take none. None if the roofs are not known; a speed-up of all is
        limited to the share of the time that is left.
        """
        if self.peaks is None:
            return None
        least = rows["roof_fraction"].fillna(0).clip(upper=1) * factor
        left = 1 - float(rows["time_share"].sum()) + float((rows["time_share"] * least).sum())
        return 1 / left if left > _LEAST_LEFT else None

    def at_most_by_settings(self) -> float | None:
        """Returns the speed-up if all kernels reached their roofs, with a thread for each core."""
        threads = self.run.threads or self.cpus
        return self.at_most(self.rows, min(1.0, threads / self.cpus) if self.cpus else 1.0)

    def kernels_of(self, op_type: str) -> list[Kernel]:
        """Returns the kernels of an operator."""
        return [kernel for kernel in self.run.kernels if kernel.op_type == op_type]

    def rows_of(self, kernels: Iterable[Kernel]) -> pd.DataFrame:
        """Returns the rows of kernels; none of a kernel that shares its row with others."""
        return self.rows[self.rows["kernels"].isin([kernel.name for kernel in kernels])]

    def row_of(self, kernel: Kernel) -> pd.DataFrame:
        """Returns the row of a kernel; empty if other kernels share the row."""
        return self.rows_of((kernel,))


def is_sure(rows: pd.DataFrame) -> pd.Series[bool]:
    """Returns whether the time of each row is reliable: well above its uncertainty."""
    narrow = rows["time_us_ci95_low"] >= _SURE * rows["time_us"]
    return narrow & (rows["time_us"] >= _SURE * rows["time_us_raw"])


def named(rows: pd.DataFrame) -> str:
    """`conv1, conv2 and 3 more`."""
    names = [brief(str(name)) for name in rows["node"]]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def mean(rows: pd.DataFrame, column: str) -> float:
    """Returns the mean of a rate, weighted by time."""
    return float((rows[column] * rows["time_us"]).sum() / rows["time_us"].sum())


def share(value: float) -> float:
    """Returns a share; 0 where nothing was timed."""
    return 0.0 if pd.isna(value) else float(value)


def percentage(value: float) -> str:
    """`41%`, `0.3%`, `less than 0.1%`."""
    if 0 < value < _LEAST_TOLD:
        return f"less than {_LEAST_TOLD:.1%}"
    return f"{value:.1%}" if value < _ROUNDED else f"{value:.0%}"


def keys(rows: pd.DataFrame) -> tuple[str, ...]:
    """Returns the nodes of some rows."""
    return tuple(map(str, rows["node"]))
