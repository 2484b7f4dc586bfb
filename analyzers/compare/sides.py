"""One side of a comparison: a node table with the uncertainty of each time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pandas as pd

from analyzers.compare import contrast
from analyzers.compare.contrast import Sample
from analyzers.compare.rounds import corrected, in_rounds, joined, tabulated
from analyzers.statistics import BATCHES, outliers, t_quantile
from analyzers.table import own_rows, rows_of
from tracer.errors import InputError
from tracer.records.trace import INCOMPLETE, Run, Trace, distinctions
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
    standard deviation of errors common to all runs. `rounds_us` (rounds × rows) has the times in
    rounds that alternated with other sides, if any. `lender` is the side whose work its rows have,
    if they count none themselves.
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
    lender: "Side | None" = field(default=None, repr=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the trace, or of the joined run: noise in a single round is not worth a note."""
        return self.trace.notes if self.rounds_us is None else self.run.notes

    @property
    def is_incomplete(self) -> bool:
        """Whether the runs were broken off."""
        return any(note.startswith(INCOMPLETE) for note in self.notes)

    def times_of(self, layers: Sequence[Sequence[int]]) -> list[Sample | None]:
        """Returns the total time of the rows of each layer, None for a layer without a time.

        Errors of rows of one run are correlated, so systematic errors add up linearly; without
        rounds, so do standard errors.
        """
        is_timed = (~np.isnan(self.time_us)).tolist()
        timed = [[row for row in rows if is_timed[row]] for rows in layers]
        systematic = _totals(self.systematic_us, timed)
        if self.rounds_us is not None:
            by_layer = _totals(self.rounds_us, timed).T
            pairs = zip(by_layer, systematic.tolist(), strict=True)
            samples = [_of_rounds(rounds, error) for rounds, error in pairs]
        else:
            arrays = (_totals(self.time_us, timed), _totals(self.error_us, timed), systematic)
            figures = zip(*(array.tolist() for array in arrays), strict=True)
            samples = [Sample(mean, error, self.dof, None, bias) for mean, error, bias in figures]
        return [sample if rows else None for sample, rows in zip(samples, timed, strict=True)]

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


def _of_rounds(rounds: FloatArray, systematic: float) -> Sample:
    """Returns the sample of a layer that took `rounds` (µs)."""
    sample = contrast.of_rounds(rounds)
    mean = round(max(sample.mean, 0.0), _DIGITS)
    return replace(sample, mean=mean, systematic=systematic)


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
    times = corrected(run, nodes)
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
        rounds_us=None,
        systematic_us=_systematic(times),
    )


def measured(
    label: str, rounds: Sequence[Trace], sessions: Sequence[FloatArray] | None = None
) -> Side:
    """Returns the side of a model that alternated with others; each round is a trace of one run.

    `sessions` have the times of blocks of whole runs that alternated, if any did.
    """
    run = joined(rounds)
    nodes = rounds[0].nodes.reset_index(drop=True)
    times = corrected(run, nodes)
    by_round = in_rounds(run, nodes, times)
    by_round = np.where(np.isnan(by_round), tabulated(rounds), by_round)
    count = len(rounds)
    error = by_round.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else by_round[0] * np.nan
    return Side(
        label=label,
        trace=rounds[0],
        run=run,
        nodes=nodes,
        wall=contrast.of_blocks(sessions) if sessions else contrast.of_rounds(run.wall_us),
        time_us=np.maximum(by_round.mean(axis=0), 0.0).round(_DIGITS),
        error_us=error,
        dof=count - 1,
        rounds_us=by_round,
        systematic_us=_systematic(times),
    )


def _systematic(times: pd.DataFrame) -> FloatArray:
    """Returns the systematic error of each row; 0 without a kernel, as nothing was subtracted."""
    systematic: FloatArray = times["systematic_us"].fillna(0.0).to_numpy("float64")
    return systematic


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
