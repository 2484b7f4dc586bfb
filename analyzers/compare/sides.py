"""One side of a comparison: a node table with the uncertainty of each time.

The sessions of a side that took turns become one run, in which each session is a sample. The runs
of a turn are few, so a single disturbed one would change their mean a lot: the time of a kernel in
a turn is the mean over the quieter half of its runs. The profiler's clock counts whole µs, and a
median could not separate 2.4 from 1.6. Profiler overhead is subtracted from all sessions together,
by `tracer.analyzers.timing`.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pandas as pd

from tracer.analyzers.compare import contrast
from tracer.analyzers.compare.alignment import Layer
from tracer.analyzers.correction import tick_error
from tracer.analyzers.table import own_rows, rows_of
from tracer.analyzers.timing import timing
from tracer.errors import InputError
from tracer.records.trace import BACKWARD, INCOMPLETE, Kernel, Run, Trace, Turns, distinctions
from tracer.support.measurements import BATCHES, middle_mean, t_quantile
from tracer.support.types import FloatArray, IntArray

_TABLE_LEVEL = 0.05
"""Significance level of the intervals in the node table."""

_DIGITS = 6
"""Decimals of a mean in µs: rounding errors of a mean of 0 must not become a ratio."""

_SEPARATOR = "; "

_LENT = ("macs", "flops", "params")
"""Work that a side lends."""


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
    wall: contrast.Sample
    time_us: FloatArray = field(repr=False)
    error_us: FloatArray = field(repr=False)
    dof: int
    systematic_us: FloatArray = field(repr=False)
    misfit_us: FloatArray = field(repr=False)
    kernels: tuple[tuple[Hashable, ...], ...] = field(repr=False)
    turns_us: tuple[FloatArray, ...] | None = field(default=None, repr=False)
    lender: "Side | None" = field(default=None, repr=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the trace, or of the joined run: noise in a few runs is not worth a note."""
        return self.trace.notes if self.turns_us is None else self.run.notes

    @property
    def is_incomplete(self) -> bool:
        """Whether the runs were broken off."""
        return any(note.startswith(INCOMPLETE) for note in self.notes)

    def times_of(self, layers: Sequence[Sequence[int]]) -> list[contrast.Sample | None]:
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
            # the mean that logarithms of ratios have: a session that stalled is no overhead of all
            with np.errstate(divide="ignore"):
                central = np.exp(np.log(levels).mean(axis=0))
            overheads = np.where(central > 0, central, levels.mean(axis=0)) - means
            errors = np.array([contrast.of_means(column).error for column in levels.T])
        arrays = (means.round(_DIGITS), errors, *systematic, overheads)
        samples: list[contrast.Sample | None] = []
        for rows, figures in zip(timed, np.array(arrays).T.tolist(), strict=True):
            mean, error, bias, misfit, overhead = figures
            kernels = tuple(kernel for row in rows for kernel in self.kernels[row])
            sample = contrast.Sample(mean, error, self.dof, bias, misfit, overhead, kernels)
            samples.append(sample if rows else None)
        return samples

    def turns_of(self, layers: Sequence[Sequence[int]]) -> list[FloatArray]:
        """Returns the time of each layer (turns × layers) of each session, overhead included."""
        timed = self._timed(layers)
        return [_totals(turns, timed) for turns in self.turns_us or ()]

    def levels_of(self, layers: Sequence[Sequence[int]]) -> FloatArray:
        """Returns the time of each layer in each session (sessions × layers), with overhead."""
        return np.array([middle_mean(turns) for turns in self.turns_of(layers)])

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


def recorded_side(label: str, trace: Trace, batch: int | None = None) -> Side:
    """Returns the side of a saved trace, at `batch` if it has several batch sizes.

    Raises InputError for a trace without a matching run, or with several.
    """
    run = _run_of(label, trace, batch)
    nodes = rows_of(trace, run).reset_index(drop=True)
    rows = _kernels_of_rows(nodes, run)
    times = _corrected(run, nodes, rows)
    time = nodes["time_us"].to_numpy(np.float64, na_value=np.nan)
    half = times["random_us"].to_numpy(np.float64)
    tabulated = nodes["time_us_ci95_high"].to_numpy(np.float64, na_value=np.nan) - time
    dof = max(min(BATCHES, int(run.counted.profiled.sum())) - 1, 0)
    t = t_quantile(_TABLE_LEVEL, dof) if dof else np.nan
    return Side(
        label=label,
        trace=trace,
        run=run,
        nodes=nodes,
        wall=contrast.of_runs(run.counted.wall_us),
        time_us=time,
        error_us=np.where(np.isnan(half), tabulated, half) / t,
        dof=dof,
        systematic_us=times["systematic_us"].fillna(0.0).to_numpy(np.float64),
        misfit_us=times["misfit_us"].fillna(0.0).to_numpy(np.float64),
        kernels=_kernels(run, rows),
    )


def measured_side(
    label: str, trace: Trace, sessions: Sequence[Turns], blocks: Sequence[FloatArray]
) -> Side:
    """Returns the side of a model that took turns with others, after a first run, its `trace`.

    `blocks` are the whole runs of each session (blocks), µs. Where there are no sessions, the runs
    of the trace are the only one: a single turn with all profiled runs.
    """
    first = trace.runs[0]
    if not sessions:
        names = tuple(kernel.name for kernel in first.kernels)
        profiled = first.samples[None], first.instrumented_us[None]
        sessions = [Turns(names, *profiled, first.wall_us, first.empty_us)]
    quiet = [_quiet(session, first.kernels) for session in sessions]
    turns = [np.array([runs.mean(axis=0) for runs in session]) for session in quiet]
    empty = [np.median(each.empty_us) for each in sessions if each.empty_us is not None]
    run = replace(
        first,
        wall_us=np.array([np.median(each.wall_us) for each in sessions]),
        instrumented_us=np.array([np.median(each.profiled_us) for each in sessions]),
        samples=np.array([middle_mean(session) for session in turns]),
        bias_error_us=_bias_error(first, np.concatenate([r for runs in quiet for r in runs])),
        tick_us=0.0,  # bias_error_us includes the clock
        empty_us=np.array(empty) if len(empty) == len(sessions) else None,
        replayed_us=None,
        returning_us=math.nan,
        use=None,
    )
    nodes = trace.nodes.reset_index(drop=True)
    rows = _kernels_of_rows(nodes, run)
    times = _corrected(run, nodes, rows)
    means = times["time_us"].to_numpy(np.float64, na_value=np.nan)
    by_session, count = _by_row(run.samples, rows), len(sessions)
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
        systematic_us=times["systematic_us"].fillna(0.0).to_numpy(np.float64),
        misfit_us=times["misfit_us"].fillna(0.0).to_numpy(np.float64),
        kernels=_kernels(run, rows),
        turns_us=tuple(_by_row(session, rows) for session in turns),
    )


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


def _kernels_of_rows(nodes: pd.DataFrame, run: Run) -> list[list[int]]:
    """Returns the kernels of each row of the node table of `run`, by their places.

    Rows of an ONNX model name their kernels; in a framework, kernels name their row.
    """
    by_name: dict[str, list[int]] = {}
    by_node: dict[str | None, list[int]] = {}
    for place, kernel in enumerate(run.kernels):
        by_name.setdefault(kernel.name, []).append(place)
        by_node.setdefault(kernel.node, []).append(place)
    cells = nodes["kernels"].astype(object).where(nodes["kernels"].notna(), "").tolist()
    rows = []
    for node, cell in zip(nodes["node"].tolist(), cells, strict=True):
        names = [cell] if cell in by_name else str(cell).split(_SEPARATOR)
        kernels = [place for name in names for place in by_name.get(name, [])]
        rows.append(kernels or (by_node.get(node, []) if cell else []))
    return rows


def _kernels(run: Run, rows: Sequence[Sequence[int]]) -> tuple[tuple[Hashable, ...], ...]:
    """Returns for each row what decides the overhead of its kernels: operator, calls, calibration.

    The calibration depends on the number of tensors and their dimensions.
    """
    biases = run.bias_us.round(_DIGITS).tolist()
    pairs = zip(run.kernels, biases, strict=True)
    seen = [(kernel.op_type, kernel.calls, bias) for kernel, bias in pairs]
    return tuple(tuple(seen[place] for place in kernels) for kernels in rows)


def _corrected(run: Run, nodes: pd.DataFrame, rows: Sequence[Sequence[int]]) -> pd.DataFrame:
    """Returns the columns of `timing` for each row of `nodes`, NaN for rows without kernels.

    `rows` are the kernels of each row. Of the rows of a kernel, the one with its time comes first.
    The runtime's own kernels have none.
    """
    keys_by_kernel: list[list[str]] = [[] for _ in run.kernels]
    of_runtime, keys = nodes["index"].isna().tolist(), nodes["node"].tolist()
    for row in nodes["time_us"].isna().to_numpy().argsort(kind="stable"):
        for index in rows[row]:
            if not of_runtime[row]:
                keys_by_kernel[index].append(keys[row])
    return timing(run, [tuple(members) for members in keys_by_kernel]).reindex(keys)


def _by_row(values: FloatArray, rows: Sequence[Sequence[int]]) -> FloatArray:
    """Returns the sums over the kernels (last axis) of each row, NaN for rows without kernels."""
    sums = np.full((*values.shape[:-1], len(rows)), np.nan)
    for row, kernels in enumerate(rows):
        if kernels:
            sums[..., row] = values[..., kernels].sum(axis=-1)
    return sums


def _quiet(session: Turns, kernels: Sequence[Kernel]) -> list[FloatArray]:
    """Returns for each turn the quieter half of its runs (runs × kernels), in µs.

    Of several kernels of one name the first has the times of all.
    """
    places: dict[str, int] = {}
    for place, kernel in enumerate(kernels):
        places.setdefault(kernel.name, place)
    samples = np.zeros((*session.samples_us.shape[:2], len(kernels)))
    for column, name in enumerate(session.kernels):
        if name in places:
            samples[:, :, places[name]] += session.samples_us[:, :, column]
    medians = np.median(session.profiled_us, axis=1, keepdims=True)
    return [
        runs[quiet] for runs, quiet in zip(samples, session.profiled_us <= medians, strict=True)
    ]


def _bias_error(run: Run, samples: FloatArray) -> FloatArray:
    """Returns the standard deviation of a call of each kernel, including the clock's part."""
    calls = np.array([kernel.calls for kernel in run.kernels])
    single = np.zeros(len(calls)) if run.bias_error_us is None else run.bias_error_us
    if not run.tick_us:
        return single
    clock = tick_error(samples, calls, run.tick_us) / np.maximum(calls, 1.0)
    errors: FloatArray = np.hypot(single, clock)
    return errors


def with_lent_work(sides: Sequence[Side], layers: Sequence[Layer]) -> list[Side]:
    """Returns the sides; one without work has the work of its layers on another side.

    A framework's operators do what their ONNX nodes do. The lender is the first side that ran on
    inputs of the same shapes. The first row of a layer has the work of the whole layer. Rows of
    backward passes have none.
    """
    counting = [place for place, side in enumerate(sides) if side.nodes["macs"].notna().any()]
    shapes = [[text.partition("[")[2] for text in side.run.inputs.values()] for side in sides]
    with_work = list(sides)
    for place, side in enumerate(sides):
        lenders = [other for other in counting if shapes[other] == shapes[place]]
        if place in counting or not lenders:
            continue
        lender = sides[lenders[0]]
        nodes = side.nodes.copy()
        backward = nodes["op_type"].str.endswith(BACKWARD).fillna(False).tolist()
        forward = [[row for row in layer.rows[place] if not backward[row]] for layer in layers]
        for column in _LENT:
            sums = lender.sums_of(column, [layer.rows[lenders[0]] for layer in layers])
            values = nodes[column].tolist()
            for rows, work in zip(forward, sums.tolist(), strict=True):
                if rows and not math.isnan(work):
                    values[rows[0]] = int(work)
            nodes[column] = pd.array(values, "Int64")
        with_work[place] = replace(side, nodes=nodes, lender=lender)
    return with_work
