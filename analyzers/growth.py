"""How time grows with the tokens in a cache: a constant and a slope, each with its uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracer.analyzers.generation import settled_means
from tracer.analyzers.timing import wall, wall_interval
from tracer.records.trace import Generated, Run
from tracer.support.statistics import t_quantile

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


def of_generations(generated: Generated, prefill: int) -> Fit | None:
    """Returns the line through the mean times of the decode steps, without disturbed ones.

    None for fewer than two steps.
    """
    times, errors = settled_means(generated.step_us)
    pasts = [prefill + step for step in range(len(times))]
    return line(None, pasts, times.tolist(), errors.tolist())


def of_runs(runs: Sequence[Run]) -> Fit | None:
    """Returns the line through the mean wall times of decode runs at several pasts; else None."""
    times = [wall(run)["mean"] for run in runs]
    highs = [wall_interval(run)[1] for run in runs]
    errors = [(high - time) / _Z_975 for high, time in zip(highs, times, strict=True)]
    return line(None, [run.past or 0 for run in runs], times, errors)


def of_nodes(tables: Sequence[pd.DataFrame], pasts: Sequence[int]) -> tuple[Fit, ...]:
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
    scale = _scale(known, chi, dof)
    halves = scale * np.sqrt(np.diag(covariance))
    return Fit(name, float(constant), float(halves[0]), float(slope), float(halves[1]))


def _scale(known: bool, chi: float, dof: int) -> float:
    """Returns what turns a standard deviation into half an interval."""
    if not known:
        return t_quantile(0.05, dof) * chi**0.5 if dof else float("nan")
    return _Z_975 * (max(1.0, chi**0.5) if dof else 1.0)
