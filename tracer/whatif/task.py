"""What all variants of a what-if share: data, metric, energy model, options and widths."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.energy import EnergyModel
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.inputs.datasets import Dataset
from tracer.limits import Limits
from tracer.metrics import Metric
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.width_plan import WidthPlan

_SLACK = 1e-9
"""Added to the budget: in floats, 98.3 - 97.3 is slightly more than 1."""
_PLAIN, _CHANNELWISE = "plain", "channelwise"


@dataclass(frozen=True, slots=True)
class Task:
    """The inputs of a what-if that do not differ between variants."""

    dataset: Dataset
    metric: Metric
    energy: EnergyModel
    options: WhatIfOptions
    plan: WidthPlan
    threads: int
    limits: Limits | None

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the sweep."""
        return self.plan.swept.value

    def allowed(self, score: float, wide: float) -> bool:
        """Whether `score` is within the budget of `wide`, the score in wide accumulators."""
        lost = wide - score if self.metric.higher_is_better else score - wide
        return lost <= self.options.accuracy_budget + _SLACK

    def better(self, score: float) -> float:
        """A number that grows as the score gets better."""
        return score if self.metric.higher_is_better else -score

    def addition_convention(self, accumulator: Accumulator) -> str:
        """How additions are counted: by the option, or by the order of the accumulator."""
        order = str(accumulator.order)
        default = _CHANNELWISE if order == _CHANNELWISE else _PLAIN
        return self.options.addition_convention or default
