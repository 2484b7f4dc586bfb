"""One side of a comparison: a node table, and how sure each of its times is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from analyzers.compare import contrast
from analyzers.compare.contrast import Sample
from analyzers.compare.rounds import corrected, in_rounds, joined, told
from analyzers.statistics import outliers, t_quantile
from tracer.errors import InputError
from tracer.records.trace import Run, Trace
from tracer.support.types import FloatArray

_TABLE_LEVEL = 0.05
"""Of the intervals in the node table."""

_TABLE_BATCHES = 30
_DIGITS = 6
"""Of a mean in µs: what is left of one that is 0 but for rounding would make any ratio."""


@dataclass(frozen=True, slots=True)
class Side:
    """What ran under one label: its trace, one run of it, and the rows of that run.

    `wall` is the time of whole inferences. `time_us` (rows) are the times of the rows, NaN where
    a row has none, `error_us` their standard errors with `dof` degrees of freedom, `systematic_us`
    what is uncertain beside that in every run alike; `rounds_us` (rounds × rows) are the times in
    rounds that other sides took turns in, if they did.
    """

    label: str
    trace: Trace = field(repr=False)
    run: Run = field(repr=False)
    nodes: pd.DataFrame = field(repr=False)
    wall: Sample
    time_us: FloatArray = field(repr=False)
    error_us: FloatArray = field(repr=False)
    dof: int
    rounds_us: FloatArray | None = field(repr=False)
    systematic_us: FloatArray = field(repr=False)

    def time_of(self, places: Sequence[int]) -> Sample | None:
        """Time of several rows together, None where none has a time.

        Rows that one run timed err together: what is systematic is added as it is, and without
        rounds so are their errors.
        """
        timed = [place for place in places if not np.isnan(self.time_us[place])]
        if not timed:
            return None
        systematic = float(self.systematic_us[timed].sum())
        if self.rounds_us is not None:
            found = contrast.of_rounds(self.rounds_us[:, timed].sum(axis=1))
            mean = round(max(found.mean, 0.0), _DIGITS)
            return replace(found, mean=mean, systematic=systematic)
        total, error = self.time_us[timed].sum(), self.error_us[timed].sum()
        return Sample(float(total), float(error), self.dof, systematic=systematic)

    def sum_of(self, column: str, places: Sequence[int]) -> float | None:
        """Sum of a column of the node table over some rows, None where it is nowhere known."""
        known = self.nodes[column].iloc[list(places)].dropna()
        return float(known.sum()) if len(known) else None


def recorded(label: str, trace: Trace, batch: int | None = None) -> Side:
    """The side of a saved trace; of several batch sizes the one asked for.

    Raises InputError for a trace without runs, or where it is not clear which one is meant.
    """
    run = _run_of(label, trace, batch)
    nodes = _rows_of(trace, run)
    batches = min(_TABLE_BATCHES, int((~outliers(run.instrumented_us)).sum()))
    times = corrected(run, nodes)
    told = (nodes["time_us_ci95_high"] - nodes["time_us"]).to_numpy(np.float64, na_value=np.nan)
    half = times["random_us"].to_numpy(np.float64)
    certain = batches > 1
    t = t_quantile(_TABLE_LEVEL, batches - 1) if certain else np.nan
    return Side(
        label=label,
        trace=trace,
        run=run,
        nodes=nodes,
        wall=contrast.of_runs(run.wall_us),
        time_us=nodes["time_us"].to_numpy(np.float64, na_value=np.nan),
        error_us=np.where(np.isnan(half), told, half) / t,
        dof=batches - 1 if certain else 0,
        rounds_us=None,
        systematic_us=_systematic(times),
    )


def measured(label: str, rounds: Sequence[Trace]) -> Side:
    """The side of a model that was run in turn with others, a trace of one run for each round."""
    run = joined(rounds)
    nodes = rounds[0].nodes.reset_index(drop=True)
    times = corrected(run, nodes)
    found = in_rounds(run, nodes, times)
    found = np.where(np.isnan(found), told(rounds), found)
    count = len(rounds)
    error = found.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else found[0] * np.nan
    return Side(
        label=label,
        trace=rounds[0],
        run=run,
        nodes=nodes,
        wall=contrast.of_rounds(run.wall_us),
        time_us=np.maximum(found.mean(axis=0), 0.0).round(_DIGITS),
        error_us=error,
        dof=count - 1,
        rounds_us=found,
        systematic_us=_systematic(times),
    )


def _systematic(times: pd.DataFrame) -> FloatArray:
    """0 for rows that name no kernel: nothing was taken off them."""
    found: FloatArray = times["systematic_us"].fillna(0.0).to_numpy("float64")
    return found


def _run_of(label: str, trace: Trace, batch: int | None) -> Run:
    if not trace.runs:
        raise InputError(
            f"{label}: holds no run to compare, as when it was written by tracer count",
            "Make one with: tracer profile MODEL -o FILE.trace.",
        )
    known = ", ".join(str(run.batch) for run in trace.runs)
    fitting = [run for run in trace.runs if batch is None or run.batch == batch]
    if not fitting:
        raise InputError(f"{label}: has no run of batch {batch}", f"It has batch {known}.")
    if len(fitting) > 1:
        raise InputError(
            f"{label}: holds runs of batch {known}", "Say which is meant, as in --batch 1."
        )
    return fitting[0]


def _rows_of(trace: Trace, run: Run) -> Any:
    nodes = trace.nodes
    same = nodes["batch"].isna() if run.batch is None else nodes["batch"] == run.batch
    chosen = (nodes["executor"] == run.executor).fillna(False) & same.fillna(False)
    return nodes[chosen].reset_index(drop=True)
