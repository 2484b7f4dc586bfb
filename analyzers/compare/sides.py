"""One side of a comparison: a node table with the uncertainty of each time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pandas as pd

from tracer.analyzers.compare import contrast
from tracer.analyzers.compare.contrast import Sample
from tracer.analyzers.compare.turns import (
    by_row,
    corrected,
    joined,
    kernels_of,
    kernels_of_rows,
    of_run,
)
from tracer.analyzers.table import own_rows, rows_of
from tracer.errors import InputError
from tracer.records.disturbance import outliers
from tracer.records.trace import INCOMPLETE, Run, Trace, distinctions
from tracer.records.turns import Turns
from tracer.support.statistics import BATCHES, middle_mean, t_quantile
from tracer.support.types import FloatArray, IntArray

_TABLE_LEVEL = 0.05
"""Significance level of the intervals in the node table."""

_DIGITS = 6
"""Decimals of a mean in µs: rounding errors of a mean of 0 must not become a ratio."""


@dataclass(frozen=True, slots=True)
class Side:
    """One run of a trace under a label, and its rows.

    `wall` is the time of an inference. `time_us` (rows) has the times of the rows, NaN for untimed
    rows; `error_us` their standard errors with `dof` degrees of freedom; `systematic_us` the
    standard deviation of errors common to all runs, and `misfit_us` its part that is the row's own.
    `kernels` (rows) are the kernels of each row as the profiler sees them. `turns_us`
    (turns × rows) has an array for each session of turns with other sides, as the profiler told
    them; it is None for a stored trace. `lender` is the side whose work its rows have, if they
    count none themselves.
    """

    label: str
    trace: Trace = field(repr=False)
    run: Run = field(repr=False)
    nodes: pd.DataFrame = field(repr=False)
    wall: Sample
    time_us: FloatArray = field(repr=False)
    error_us: FloatArray = field(repr=False)
    dof: int
    systematic_us: FloatArray = field(repr=False)
    misfit_us: FloatArray = field(repr=False)
    kernels: tuple[tuple[Hashable, ...], ...] = field(repr=False)
    turns_us: tuple[FloatArray, ...] | None = field(default=None, repr=False)
    lender: Side | None = field(default=None, repr=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the trace, or of the joined run: noise in a few runs is not worth a note."""
        return self.trace.notes if self.turns_us is None else self.run.notes

    @property
    def is_incomplete(self) -> bool:
        """Whether the runs were broken off."""
        return any(note.startswith(INCOMPLETE) for note in self.notes)

    def times_of(self, layers: Sequence[Sequence[int]]) -> list[Sample | None]:
        """Returns the total time of the rows of each layer, None for a layer without a time.

        Errors of rows of one run are correlated, so they add up linearly; sessions tell the error
        of their sum.
        """
        timed = self._timed(layers)
        fields = (self.time_us, self.error_us, self.systematic_us, self.misfit_us)
        means, errors, *systematic = (_totals(values, timed) for values in fields)
        overheads = np.zeros(len(layers))
        if self.turns_us is not None:
            levels = self.levels_of(layers)
            overheads = levels.mean(axis=0) - means
            errors = np.array([contrast.of_means(column).error for column in levels.T])
        arrays = (means.round(_DIGITS), errors, *systematic, overheads)
        figures = zip(*(array.tolist() for array in arrays), strict=True)
        return [
            Sample(mean, error, self.dof, bias, misfit, overhead, self._kernels_of(rows))
            if rows
            else None
            for rows, (mean, error, bias, misfit, overhead) in zip(timed, figures, strict=True)
        ]

    def turns_of(self, layers: Sequence[Sequence[int]]) -> list[FloatArray]:
        """Returns the time of each layer (turns × layers) of each session, overhead included."""
        timed = self._timed(layers)
        return [_totals(turns, timed) for turns in self.turns_us or ()]

    def levels_of(self, layers: Sequence[Sequence[int]]) -> FloatArray:
        """Returns the time of each layer in each session (sessions × layers), with overhead."""
        return np.array([middle_mean(turns) for turns in self.turns_of(layers)])

    def _kernels_of(self, rows: Sequence[int]) -> tuple[Hashable, ...]:
        return tuple(kernel for row in rows for kernel in self.kernels[row])

    def _timed(self, layers: Sequence[Sequence[int]]) -> list[list[int]]:
        is_timed = (~np.isnan(self.time_us)).tolist()
        return [[row for row in rows if is_timed[row]] for rows in layers]

    def sums_of(self, column: str, layers: Sequence[Sequence[int]]) -> FloatArray:
        """Returns the sum of a column over the rows of each layer, NaN if unknown for all."""
        rows, sizes = _flat(layers)
        of_layer = np.repeat(np.arange(len(layers)), sizes)
        sums = self.nodes[column].iloc[rows].groupby(of_layer).sum(min_count=1)
        return sums.reindex(range(len(layers))).to_numpy(np.float64, na_value=np.nan)

    def total_of(self, column: str) -> float | None:
        """Returns the sum of a column over all rows; None if rows lack a part of the lender's."""
        values = self.nodes[column].dropna()
        total = float(values.sum()) if len(values) else None
        if self.lender is None or total == self.lender.total_of(column):
            return total
        return None


def _totals(values: FloatArray, layers: Sequence[Sequence[int]]) -> FloatArray:
    """Returns the sums over the rows of each layer (rows on the last axis), NaN without rows."""
    rows, sizes = _flat(layers)
    totals = np.full((*values.shape[:-1], len(layers)), np.nan)
    if len(rows):
        starts = (np.cumsum(sizes) - sizes)[sizes > 0]
        totals[..., sizes > 0] = np.add.reduceat(values[..., rows], starts, axis=-1)
    return totals


def _flat(layers: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Returns the rows of all layers, and the number of rows of each."""
    sizes = np.fromiter(map(len, layers), np.int64, len(layers))
    return np.fromiter(chain.from_iterable(layers), np.int64, int(sizes.sum())), sizes


def recorded(label: str, trace: Trace, batch: int | None = None) -> Side:
    """Returns the side of a saved trace, at `batch` if it has several batch sizes.

    Raises InputError for a trace without a matching run, or with several.
    """
    run = _run_of(label, trace, batch)
    nodes = rows_of(trace, run).reset_index(drop=True)
    batches = min(BATCHES, int((~outliers(run.instrumented_us)).sum()))
    rows = kernels_of_rows(nodes, run)
    times = corrected(run, nodes, rows)
    tabulated_half = (nodes["time_us_ci95_high"] - nodes["time_us"]).to_numpy(
        np.float64, na_value=np.nan
    )
    half = times["random_us"].to_numpy(np.float64)
    dof = max(batches - 1, 0)
    t = t_quantile(_TABLE_LEVEL, dof) if dof else np.nan
    return Side(
        label=label,
        trace=trace,
        run=run,
        nodes=nodes,
        wall=contrast.of_runs(run.wall_us),
        time_us=nodes["time_us"].to_numpy(np.float64, na_value=np.nan),
        error_us=np.where(np.isnan(half), tabulated_half, half) / t,
        dof=dof,
        systematic_us=_known(times["systematic_us"]),
        misfit_us=_known(times["misfit_us"]),
        kernels=_kernels(run, rows),
    )


def measured(
    label: str, trace: Trace, sessions: Sequence[Turns], blocks: Sequence[FloatArray]
) -> Side:
    """Returns the side of a model that took turns with others, after a first run, its `trace`.

    `blocks` are the whole runs of each session (blocks), µs. Where there are no sessions, the runs
    of the trace are the only one.
    """
    first = trace.runs[0]
    sessions = sessions or [of_run(first)]
    kernels = kernels_of(sessions, first.kernels)
    run = joined(first, sessions, kernels)
    nodes = trace.nodes.reset_index(drop=True)
    rows = kernels_of_rows(nodes, run)
    times = corrected(run, nodes, rows)
    means = times["time_us"].to_numpy(np.float64, na_value=np.nan)
    by_session, count = by_row(run.samples, rows), len(sessions)
    error = np.full(len(means), np.nan)
    if count > 1:
        error = by_session.std(axis=0, ddof=1) / np.sqrt(count)
    return Side(
        label=label,
        trace=trace,
        run=run,
        nodes=nodes,
        wall=contrast.of_blocks(blocks) if blocks else contrast.of_means(run.wall_us),
        time_us=means.round(_DIGITS),
        error_us=error,
        dof=count - 1,
        systematic_us=_known(times["systematic_us"]),
        misfit_us=_known(times["misfit_us"]),
        kernels=_kernels(run, rows),
        turns_us=tuple(by_row(turns, rows) for turns in kernels.turns),
    )


def _kernels(run: Run, rows: Sequence[Sequence[int]]) -> tuple[tuple[Hashable, ...], ...]:
    """Returns for each row what decides the overhead of its kernels: operator, calls, calibration.

    The calibration depends on the number of tensors and their dimensions.
    """
    biases = run.bias_us.round(_DIGITS).tolist()
    pairs = zip(run.kernels, biases, strict=True)
    seen = [(kernel.op_type, kernel.calls, bias) for kernel, bias in pairs]
    return tuple(tuple(seen[place] for place in kernels) for kernels in rows)


def _known(errors: pd.Series[float]) -> FloatArray:
    """Returns the errors of rows; 0 without a kernel, as nothing was subtracted."""
    known: FloatArray = errors.fillna(0.0).to_numpy(np.float64).astype(np.float64)
    return known


def _run_of(label: str, trace: Trace, batch: int | None) -> Run:
    if not trace.runs:
        raise InputError(
            f"{label}: holds no run to compare, like a trace written by tracer count",
            "Make one with: tracer profile MODEL -o FILE.trace.",
        )
    runs = [run for run in trace.runs if len(own_rows(trace, run))] or trace.runs
    sizes = ", ".join(dict.fromkeys(str(run.batch) for run in runs))
    matching = [run for run in runs if batch is None or run.batch == batch]
    if not matching:
        raise InputError(f"{label}: has no run of batch {batch}", f"It has batch {sizes}.")
    if len({run.batch for run in matching}) > 1:
        raise InputError(f"{label}: holds runs of batch {sizes}", "Choose one, as in --batch 1.")
    if len(matching) > 1:
        raise InputError(
            f"{label}: holds several runs of one batch: {'; '.join(distinctions(matching))}",
            "Profile the one to compare into a trace of its own.",
        )
    return matching[0]
