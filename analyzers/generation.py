"""The speed of whole generations: tokens per second in each phase, with an interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracer.analyzers.timing import wall, wall_interval
from tracer.records.counted_runs import outliers
from tracer.records.trace import Generated, Generation, Run
from tracer.support.statistics import t_quantile
from tracer.support.types import FloatArray

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


def growth_of_runs(runs: Sequence[Run]) -> Fit | None:
    """Returns the line through the mean wall times of decode runs at several pasts; else None."""
    times = [wall(run)["mean"] for run in runs]
    highs = [wall_interval(run)[1] for run in runs]
    errors = [(high - time) / _Z_975 for high, time in zip(highs, times, strict=True)]
    return line(None, [run.past or 0 for run in runs], times, errors)


def growth_of_nodes(tables: Sequence[pd.DataFrame], pasts: Sequence[int]) -> tuple[Fit, ...]:
    """Returns the lines of the nodes that grow most, the steepest first.

    `tables` are the rows of decode runs, folded by `node`, one for each of `pasts`. Nodes whose
    growth is within its uncertainty are left out.
    """
    fits = []
    indexed = [table.drop_duplicates("node").set_index("node") for table in tables]
    common = [name for name in indexed[0].index if all(name in other.index for other in indexed)]
    for name in common:
        rows = [table.loc[name] for table in indexed]
        times = [float(row["time_us"]) for row in rows]
        highs = [float(row["time_us_ci95_high"]) for row in rows]
        errors = [(high - time) / _Z_975 for high, time in zip(highs, times, strict=True)]
        fit = line(str(name), pasts, times, errors)
        if fit is not None and fit.grows:
            fits.append(fit)
    return tuple(sorted(fits, key=lambda fit: -fit.slope_us)[:_TOP])


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
    rate, fastest = tokens * 1e6, max(mean - half, mean / 2)
    return Speed(mean, tokens, rate / mean, rate / (mean + half), rate / fastest)
