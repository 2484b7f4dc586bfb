"""The result of a what-if over accumulators of several kinds: one row for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.records.whatif import EnergyBasis, Judgement


@dataclass(frozen=True, slots=True)
class SweptAccumulator:
    """A network whose sums are all computed in one accumulator.

    `score` is the mean over all samples. Counts are those of all nodes together: `outputs` are
    sums, `overflow_outputs` those that left a range. `swamped_share` is the share of the terms that
    did not change their sum, and `rel_error_p50` and `rel_error_p99` are percentiles of the
    relative error of a sum; None for sums of integers. `energy` is per sample; None where the
    energy model lacks figures.
    """

    accumulator: str
    operands: str | None
    score: float
    outputs: int
    overflow_outputs: int
    swamped_share: float | None
    rel_error_p50: float | None
    rel_error_p99: float | None
    energy: float | None


@dataclass(frozen=True, slots=True, repr=False)
class AccumulatorSweep(Result):
    """The rows in the order of the request, and the `score` of the model as it is.

    `judgement` says how much of it may be lost.
    """

    view: ClassVar[str] = "tracer.analyzers.whatif.accumulators"

    model: ModelInfo
    environment: Environment
    settings: Mapping[str, Any]
    judgement: Judgement
    energy: EnergyBasis
    score: float
    samples: int
    rows: tuple[SweptAccumulator, ...]
    notes: tuple[str, ...] = ()

    @property
    def sufficient(self) -> tuple[SweptAccumulator, ...]:
        """The rows within the accuracy budget."""
        return tuple(row for row in self.rows if self.judgement.allows(row.score, self.score))

    @property
    def cheapest(self) -> SweptAccumulator | None:
        """The row of least known energy within the budget; None if there is none."""
        known = (row for row in self.sufficient if row.energy is not None)
        return min(known, key=lambda row: row.energy or 0.0, default=None)

    def headline(self) -> str:
        """The model, the accumulators, and those within the budget."""
        return (
            f"{self.model.name}, {len(self.rows)} accumulators, {len(self.sufficient)} of them "
            f"within the budget"
        )
