"""The phases of a language model side by side: a row for each node, columns for each phase.

Tokens per second of a generation have an interval.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from tracer.analyzers.advice import advise
from tracer.analyzers.options import NAMES, ViewOptions, sort_column
from tracer.analyzers.timing import wall, wall_interval
from tracer.analyzers.views.page import Table, name_column, number_column
from tracer.analyzers.views.text import (
    FORMATS,
    FULL_FORMATS,
    duration,
    full,
    micros,
    plural,
    quantity,
    si,
    time_number,
    time_unit,
)
from tracer.analyzers.views.trace.headline import Section, displayed, execution, folded, sections
from tracer.records.columns import Format
from tracer.records.counted_runs import outliers
from tracer.records.trace import Generated, Generation, Run, Trace
from tracer.support.measurements import t_quantile
from tracer.support.types import FloatArray
from tracer.text import DECODE

_Z_975 = 1.96
_TOP = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """time = `constant_us` + `slope_us` × tokens, each ± half its 95 % confidence interval, µs.

    `name` is a node, or None for a whole run. The halves are NaN where nothing tells them.
    """

    name: str | None
    constant_us: float
    constant_plus_minus: float
    slope_us: float
    slope_plus_minus: float

    @property
    def grows(self) -> bool:
        """Whether the slope is above 0 beyond its uncertainty."""
        return self.slope_us > self.slope_plus_minus


def growth_of_generations(generated: Generated, prefill: int) -> Fit | None:
    """Returns the line through the mean times of the decode steps, without disturbed ones.

    None for fewer than two steps.
    """
    times, errors = settled_means(generated.step_us)
    pasts = [prefill + step for step in range(len(times))]
    return line(None, pasts, times.tolist(), errors.tolist())


def growth_of_runs(runs: Sequence[Run], tables: Sequence[pd.DataFrame]) -> Iterator[Fit]:
    """Yields the line through the wall times of decode runs at several pasts, and those of nodes.

    `tables` are the rows of the runs, folded by `node`. Of the nodes that grow beyond their
    uncertainty the steepest come first.
    """
    pasts = [run.past or 0 for run in runs]

    def fit(name: str | None, times: Sequence[float], highs: Sequence[float]) -> Fit | None:
        errors = [(high - time) / _Z_975 for high, time in zip(highs, times, strict=True)]
        return line(name, pasts, times, errors)

    whole = fit(None, [wall(run)["mean"] for run in runs], [wall_interval(run)[1] for run in runs])
    yield from filter(None, (whole,))
    indexed = [table.drop_duplicates("node").set_index("node") for table in tables]
    common = [name for name in indexed[0].index if all(name in other.index for other in indexed)]
    growing = list[Fit]()
    for name in common:
        rows = [table.loc[name] for table in indexed]
        times, highs = ([float(row[n]) for row in rows] for n in ("time_us", "time_us_ci95_high"))
        found = fit(str(name), times, highs)
        growing += [found] if found is not None and found.grows else []
    yield from sorted(growing, key=lambda each: -each.slope_us)[:_TOP]


def line(
    name: str | None, pasts: Sequence[int], times: Sequence[float], errors: Sequence[float]
) -> Fit | None:
    """Returns the line of weighted least squares; None for fewer than two times.

    `errors` are standard deviations of `times`. Where the points lie further from the line than
    these explain, the intervals are widened by the Birge ratio, the root of chi² per degree of
    freedom (R. T. Birge, Phys. Rev. 40 (1932) 207).
    """
    x, y, sigma = (np.array(values, np.float64) for values in (pasts, times, errors))
    if len(x) < 2 or not np.isfinite(y).all():
        return None
    known = bool(np.isfinite(sigma).all() and (sigma > 0).all())
    weights = 1 / sigma**2 if known else np.ones_like(x)
    design = np.column_stack([np.ones_like(x), x])
    covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
    constant, slope = covariance @ (design.T @ (weights * y))
    dof = len(x) - 2
    chi = float((weights * (y - constant - slope * x) ** 2).sum()) / dof if dof else np.nan
    # What turns a standard deviation into half an interval.
    scale = _Z_975 * (max(1.0, chi**0.5) if dof else 1.0)
    if not known:
        scale = t_quantile(0.05, dof) * chi**0.5 if dof else float("nan")
    halves = scale * np.sqrt(np.diag(covariance))
    return Fit(name, float(constant), float(halves[0]), float(slope), float(halves[1]))


@dataclass(frozen=True, slots=True)
class Speed:
    """Mean time of a phase per generation, µs, and tokens of all batch entries per second.

    `low` and `high` are the 95 % confidence interval of `tokens_per_s`; NaN for one generation.
    """

    us: float
    tokens: int
    tokens_per_s: float
    low: float
    high: float


def prefill(generation: Generation, generated: Generated) -> Speed:
    """Returns the speed of the prefill."""
    return _speed([[us] for us in generated.prefill_us], generated.batch * generation.prefill)


def decode(generation: Generation, generated: Generated) -> Speed | None:
    """Returns the speed of all decode steps; None where there are none."""
    if not generation.decode:
        return None
    return _speed(generated.step_us, generated.batch * generation.decode)


def settled_means(times: Sequence[Sequence[float]]) -> tuple[FloatArray, FloatArray]:
    """Returns the mean of each column of `times` (generations × steps), and its standard error.

    Times that something disturbed are left out (see `counted_runs.outliers`). The error of a single
    time is NaN.
    """
    columns = np.array(times, np.float64).reshape(len(times), -1).T
    settled = [column[~outliers(column)] for column in columns]
    errors = [c.std(ddof=1) / len(c) ** 0.5 if len(c) > 1 else np.nan for c in settled]
    return np.array([column.mean() for column in settled]), np.array(errors)


def _speed(times: Sequence[Sequence[float]], tokens: int) -> Speed:
    """Returns the speed of inferences (generations × steps) that make `tokens` together."""
    means, errors = settled_means(times)
    mean = float(means.sum())
    half = t_quantile(0.05, max(len(times) - 1, 1)) * float((errors**2).sum()) ** 0.5
    # the interval of the logarithm of the time, by the delta method: no end is below 0
    rate, factor = tokens * 1e6 / mean, math.exp(half / mean)
    return Speed(mean, tokens, rate, rate / factor, rate * factor)


_Configuration: TypeAlias = "tuple[object, ...]"
_SHOWN: tuple[tuple[str, str, Format, int], ...] = (
    # column of the node table, header, format, rank on a terminal
    ("time_us", "µs", "micros", 1),
    ("time_share", "share", "percent", 2),
    ("macs", "MACs", "si", 3),
    ("bytes_moved", "bytes", "si", 4),
    ("roof_fraction", "roof", "roof", 5),
    ("intensity", "flop/B", "si", 6),
    ("bound", "bound", "name", 13),
)
_ADVICE = 7
"""Lines of advice on all phases together."""
_FURTHER = 6
"""What the ranks of a further past begin after."""


def tables(trace: Trace, known: Generation, options: ViewOptions) -> Iterator[Table]:
    """Yields for each configuration a table of the phases, and one of how decode grows."""
    formats = FULL_FORMATS if options.full_numbers else FORMATS
    for some in _by_configuration(sections(trace)).values():
        fold = [displayed(folded(section, options)) for section in some]
        labels = _labels(some)
        rows = _join_phases(some, fold, labels, options)
        timed = any(section.run is not None for section in some)
        name = NAMES[options.by]
        columns = [name_column(options.by, name, 0)]
        if name != "op_type":
            columns.append(name_column("op", "op_type", 3))
        times = tuple(f"time_us {label}" for label in labels)
        for field, header, form, rank in _SHOWN:
            for number, label in enumerate(labels):
                at = rank + _FURTHER * max(number - 1, 0)
                column = f"{label} {header}", f"{field} {label}"
                if form == "name":
                    columns.append(name_column(*column, at))
                elif form == "micros":
                    columns.append(number_column(*column, time_number, at, times))
                else:
                    columns.append(number_column(*column, formats[form], at))
        first, parts = some[0], [trace.model.name]
        if first.batch is not None:
            parts.append(f"batch {first.batch:,}")
        if first.run is not None:
            parts += execution(trace, first.run)
        parts.append("phases")
        yield Table(
            " · ".join(parts),
            columns,
            rows,
            head=tuple(_head(some, known, labels)),
            lines=tuple(_totals(some, labels, options)),
            is_long=True,
            advice=tuple(_advice(trace, some, labels)),
            weight=(f"{'time_us' if timed else 'macs'} {labels[-1]}",
                    f"time of {labels[-1]}" if timed else f"MACs of {labels[-1]}"),
        )  # fmt: skip
        fits = _fits(some, known, options)
        if fits:
            yield _growth(fits)


def phase_lines(trace: Trace, section: Section) -> tuple[str, ...]:
    """Returns the speeds and the cache of the configuration of `section`; none without phases."""
    if trace.generation is None:
        return ()
    some = next(
        each
        for each in _by_configuration(sections(trace)).values()
        if any(other.key == section.key for other in each)
    )
    return tuple(_head(some, trace.generation, _labels(some)))


def generation(trace: Trace) -> dict[str, Any] | None:
    """Returns the tokens, the cache and the speeds of a trace of phases as plain values.

    `configurations` have `tokens_per_s` with the ends of its 95 % confidence interval, `cache` in
    bytes by formula and as allocated after the last step, and `growth`, the fits of `growth`.
    """
    known = trace.generation
    if known is None:
        return None
    configurations = []
    for some in _by_configuration(sections(trace)).values():
        generated, total = _generated(some, known), known.prefill + (known.decode or 0)
        batch = some[0].batch or 1
        speed: dict[str, Speed | None] = {}
        if generated:
            speed["prefill"] = prefill(known, generated)
            speed["decode"] = decode(known, generated)
        configuration = {
            "batch": batch,
            **{name: some[0].key[name] for name in ("threads", "optimization")},
            "generations": len(generated.prefill_us) if generated else 0,
            "speed": {name: each and asdict(each) for name, each in speed.items()},
            "cache_bytes": known.cache.nbytes(batch, total),
            "cache_bytes_allocated": generated.allocated_bytes if generated else None,
            "growth": [asdict(fit) for fit in _fits(some, known, ViewOptions())],
        }
        configurations.append(configuration)
    return {
        "prefill": known.prefill,
        "decode": known.decode,
        "cache": asdict(known.cache),
        "configurations": configurations,
    }


def _by_configuration(shown: Sequence[Section]) -> Mapping[_Configuration, list[Section]]:
    found: dict[_Configuration, list[Section]] = {}
    for section in shown:
        cells = {**section.key, "batch": section.batch, "phase": None, "past": None}
        found.setdefault(tuple(cells.values()), []).append(section)
    return found


def _labels(some: Sequence[Section]) -> list[str]:
    """Returns what each phase is called: `prefill`, `decode`, or `decode@512` of several."""
    several = sum(section.phase == DECODE for section in some) > 1
    return [
        f"{section.phase}@{section.past}" if several and section.phase == DECODE
        else str(section.phase)
        for section in some
    ]  # fmt: skip


def _join_phases(
    some: Sequence[Section],
    fold: Sequence[pd.DataFrame],
    labels: Sequence[str],
    options: ViewOptions,
) -> pd.DataFrame:
    """Returns a row for each that any phase has, the largest share of a phase's time first.

    A count is sorted by MACs, and any by `options.sort`: amounts downwards, names upwards.
    """
    name = NAMES[options.by]
    parts, first = [], None
    for rows, label in zip(fold, labels, strict=True):
        indexed = rows.drop_duplicates(name).set_index(name)
        kinds = indexed[["op_type"]] if "op_type" in indexed else indexed[[]]
        first = kinds if first is None else first.combine_first(kinds)
        shown = indexed.reindex(columns=[each[0] for each in _SHOWN])
        parts.append(shown.add_suffix(f" {label}"))
    assert first is not None  # a trace of phases has one at least
    joined = pd.concat([first, *parts], axis=1).reset_index(names=name)
    spec = sort_column(options.sort, options.by) if options.sort else None
    by = spec.name if spec else "time_share" if some[0].run is not None else "macs"
    if by in joined:  # the name of a row, or its operator
        return joined.sort_values(by, kind="stable")
    columns = [rows.drop_duplicates(name).set_index(name)[by] for rows in fold if by in rows]
    if not columns:
        return joined
    values = pd.concat(columns, axis=1).reindex(joined[name]).reset_index(drop=True)
    if spec and (spec.is_name or spec.name == "index"):
        return joined.loc[values.iloc[:, 0].sort_values(kind="stable").index]
    sums = values.astype("float64")
    order = (sums / sums.sum()).max(axis=1).sort_values(ascending=False, kind="stable").index
    return joined.loc[order]


def _head(some: Sequence[Section], known: Generation, labels: Sequence[str]) -> Iterator[str]:
    generated = _generated(some, known)
    if generated is not None and generated.prefill_us:
        count = plural(len(generated.prefill_us), "generation")
        speed = _per_second(prefill(known, generated))
        yield f"prefill of {plural(known.prefill, 'token')}: {speed} ({count})"
        steps = decode(known, generated)
        if steps is not None and known.decode:
            first, last = known.prefill, known.prefill + known.decode - 1
            pace = f"{_per_second(steps)}, {duration(steps.us / known.decode)} a step"
            yield f"decode of {plural(known.decode, 'token')}: {pace}, past {first:,} to {last:,}"
    for section, label in zip(some, labels, strict=True):
        if section.run is not None:
            low, high = wall_interval(section.run)
            tokens = plural(1 if section.phase == DECODE else known.prefill, "token")
            scale, unit = time_unit(mean := wall(section.run)["mean"])
            yield (
                f"{label}: {time_number(mean / scale)} ± {time_number((high - low) / 2 / scale)} "
                f"{unit} a run of {tokens} with {section.past:,} in the cache"
            )
    cache, batch = known.cache, some[0].batch or 1
    total = known.prefill + (known.decode or 0)
    yield (
        f"KV cache: {quantity(cache.token_bytes, 'B', full)} a token (2 x "
        f"{plural(cache.layers, 'layer')} x {plural(cache.heads, 'head')} x {cache.head_size} "
        f"{cache.dtype})"
    )
    of_all = quantity(cache.nbytes(batch, total), "B", full)
    entries = f" of a batch of {batch:,}" if batch > 1 else ""
    got = f", {quantity(generated.allocated_bytes, 'B', full)} allocated" if generated else ""
    yield f"KV cache of {plural(total, 'token')}{entries}: {of_all} by formula{got}"


def _per_second(speed: Speed) -> str:
    interval = "" if math.isnan(speed.low) else f" ({speed.low:,.0f} to {speed.high:,.0f})"
    return f"{speed.tokens_per_s:,.0f} tokens/s{interval}"


def _totals(some: Sequence[Section], labels: Sequence[str], options: ViewOptions) -> Iterator[str]:
    text = full if options.full_numbers else si
    for section, label in zip(some, labels, strict=True):
        own = section.nodes[section.nodes["index"].notna()]
        least = "at least " if own["macs"].isna().any() else ""
        moved = float((own["bytes_read"] + own["bytes_written"]).sum())
        flops = float(own["flops"].sum())
        intensity = f", {si(flops / moved)} flop/B" if moved else ""
        yield (
            f"{label}: {least}{text(float(own['macs'].sum()))} MACs, {quantity(moved, 'B', text)} "
            f"moved{intensity}"
        )


def _advice(trace: Trace, some: Sequence[Section], labels: Sequence[str]) -> Iterator[str]:
    """Yields the advice on the phases, the largest share first; that of one rule once a phase."""
    sentences = [
        (section.phase, label, advice)
        for section, label in zip(some, labels, strict=True)
        for advice in advise(trace, section.run, section.nodes)
    ]
    sentences.sort(key=lambda each: -each[2].weight)
    first = {(phase, each.rule): (label, each) for phase, label, each in reversed(sentences)}
    ordered = sorted(first.values(), key=lambda each: -each[1].weight)
    for label, advice in ordered[:_ADVICE]:
        yield f"{label}: {advice.text}"


def _generated(some: Sequence[Section], known: Generation) -> Generated | None:
    key = some[0].key
    cells = (key["batch"], key["threads"], key["optimization"])
    alike = (g for g in known.measured if (g.batch, g.threads, g.optimization) == cells)
    return next(alike, None)


def _fits(some: Sequence[Section], known: Generation, options: ViewOptions) -> tuple[Fit, ...]:
    """Returns how a whole decode step and its nodes grow: over pasts, else over the steps."""
    decodes = [section for section in some if section.phase == DECODE]
    runs = [section.run for section in decodes if section.run is not None]
    if len(runs) > 1:
        folds = [folded(s, ViewOptions(expand=options.expand)) for s in decodes]
        return tuple(growth_of_runs(runs, folds))
    generated = _generated(some, known)
    whole = None if generated is None else growth_of_generations(generated, known.prefill)
    return () if whole is None else (whole,)


def _growth(fits: Sequence[Fit]) -> Table:
    """The table of the lines."""
    names = [fit.name or "a decode step" for fit in fits]
    rows = pd.DataFrame([asdict(fit) for fit in fits]).assign(name=names)
    first, text = fits[0], "no growth beyond its uncertainty"
    if first.grows:
        text = f"{duration(first.constant_us)} + {first.slope_us:.3g} µs per token in the cache"

    constants = ("constant_us", "constant_plus_minus")

    def slope(value: float) -> str:
        """Writes µs per 1000 tokens; times of less than 0 have a sign."""
        return f"-{micros(-value * 1000)}" if value < 0 else micros(value * 1000)

    return Table(
        "time of a decode step by the tokens in the cache",
        (
            name_column("node", "name", 0),
            number_column("constant µs", "constant_us", time_number, 1, constants),
            number_column("±", "constant_plus_minus", time_number, 3, constants),
            number_column("µs/1000 tokens", "slope_us", slope, 2),
            number_column("± /1000", "slope_plus_minus", lambda v: micros(v * 1000), 4),
        ),
        rows,
        lines=(f"{names[0]}: {text}",),
    )
