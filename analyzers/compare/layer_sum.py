"""Hold the sum of the layers' differences against the difference of whole runs.

Layers come from profiled runs, whole runs from runs without a profiler, in sessions of their own.
So they agree only if the profiler disturbs both sides alike, and the difference lies in layers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracer.analyzers.compare.alignment import Layer
from tracer.analyzers.compare.contrast import LEVEL, is_shared, log_ratios, misfit_of
from tracer.analyzers.compare.layers import RowsOfTwo
from tracer.analyzers.compare.sides import Side
from tracer.support.statistics import t_quantile
from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class LayerSum:
    """The differences of a side from the first, as shares of a run of the first, with intervals.

    `layers` is the sum over all layers, and `whole` the difference of whole runs.
    """

    side: str
    layers: float
    layers_low: float
    layers_high: float
    whole: float
    whole_low: float
    whole_high: float

    @property
    def agrees(self) -> bool:
        """Whether both differ by no more than their intervals allow together."""
        allowed = math.hypot(
            (self.layers_high - self.layers_low) / 2, (self.whole_high - self.whole_low) / 2
        )
        return abs(self.layers - self.whole) <= allowed


def layer_sums(
    sides: Sequence[Side], layers: Sequence[Layer], totals: pd.DataFrame
) -> tuple[LayerSum, ...]:
    """Returns the sum for each side but the first that took turns with it in several sessions."""
    sums = []
    for index in range(1, len(sides)):
        rows = [layer.rows[0] for layer in layers], [layer.rows[index] for layer in layers]
        whole = totals.iloc[index]
        shares = _shares(sides[0], sides[index], rows)
        if len(shares) < 2 or math.isnan(whole["ratio_low"]):
            continue
        error = math.hypot(
            float(shares.std(ddof=1)) / math.sqrt(len(shares)),
            _systematic(sides[0], sides[index], rows),
        )
        mean, half = float(shares.mean()), t_quantile(LEVEL, len(shares) - 1) * error
        ends = (float(whole[end]) - 1 for end in ("ratio", "ratio_low", "ratio_high"))
        sums.append(LayerSum(sides[index].label, mean, mean - half, mean + half, *ends))
    return tuple(sums)


def _shares(first: Side, second: Side, rows: RowsOfTwo) -> FloatArray:
    """Returns the sum of the changes of all layers in each session, as a share of a run of `first`.

    The speed of the machine in a session is in the changes and in the run, and leaves the share.
    """
    if first.turns_us is None or second.turns_us is None or first.dof != second.dof:
        return np.empty(0)
    before, after = first.levels_of(rows[0]), second.levels_of(rows[1])
    logs = log_ratios(first.turns_of(rows[0]), second.turns_of(rows[1]))
    added = np.array([second_o - first_o for first_o, second_o in _overheads(first, second, rows)])
    both = np.isfinite(logs)
    changes = np.where(
        both,
        np.nan_to_num(before) * np.expm1(np.where(both, logs, 0.0)),
        np.nan_to_num(after) - np.nan_to_num(before),
    )
    shares: FloatArray = (changes - added).sum(axis=1) / first.run.wall_us
    return shares


def _overheads(first: Side, second: Side, rows: RowsOfTwo) -> list[tuple[float, float]]:
    """Returns the overhead of each layer on both sides; 0 where it is the same on both."""
    overheads = []
    for a, b in zip(first.times_of(rows[0]), second.times_of(rows[1]), strict=True):
        shared = a is not None and b is not None and is_shared(a, b)
        overheads.append(
            (0.0, 0.0) if shared else (a.overhead if a else 0.0, b.overhead if b else 0.0)
        )
    return overheads


def _systematic(first: Side, second: Side, rows: RowsOfTwo) -> float:
    """Returns the standard deviation of the overheads' differences, as such a share."""
    variance = 0.0
    for a, b in zip(first.times_of(rows[0]), second.times_of(rows[1]), strict=True):
        if a is not None and b is not None:
            variance += misfit_of(a, b) ** 2
        else:
            variance += sum(each.misfit**2 for each in (a, b) if each is not None)
    return math.sqrt(variance) / float(first.run.wall_us.mean())
