"""The result of tuning: every change that was tried, the best combination, and how to make it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import onnx

from tracer.records.model_info import ModelInfo
from tracer.records.result import Result


@dataclass(frozen=True, slots=True)
class Speedup:
    """Time before ÷ time after; between `low` and `high` with a confidence of 99 %."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One form of a change, tried alone: `why` it was, and what came of it.

    `speedup` and `memory_bytes` (of a session at most) are None where they were not measured.
    `difference` is the largest error of an output ÷ its largest value in the unchanged model.
    `verdict` says in words whether the change was kept, and why not.
    """

    change: str
    value: str
    why: str
    effect: str
    verdict: str
    kept: bool = False
    speedup: Speedup | None = None
    memory_bytes: int | None = None
    difference: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What was chosen for the model with the hash `sha256`, and where: steps of change and value.

    `settings` are those that the steps change. `processor`, `cores` and `onnxruntime` tell the
    machine of the measurements.
    """

    model: str
    sha256: str
    goal: str
    steps: tuple[tuple[str, str], ...]
    settings: Mapping[str, Any]
    processor: str
    cores: int
    onnxruntime: str
    speedup: Speedup | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Tuned(Result):
    """A tuned model: the trials, best first, and the `plan` of the best combination.

    `speedup`, `memory_bytes` and `difference` are those of the combination, as in Trial, and
    `memory_before` is the memory of the unchanged model. `code` are lines of Python that open the
    session, after `commands` that make the changed model. `proto` is the changed model, None where
    the model stays as it is.
    """

    view: ClassVar[str] = "tracer.analyzers.views.tuned"

    model: ModelInfo
    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]
    plan: Plan
    speedup: Speedup | None
    memory_bytes: int | None
    memory_before: int | None
    difference: float | None
    commands: tuple[str, ...]
    code: tuple[str, ...]
    notes: tuple[str, ...]
    proto: onnx.ModelProto | None = field(default=None, repr=False)

    def headline(self) -> str:
        """The model, what was chosen, and the speed-up."""
        chosen = ", ".join(f"{change}={value}" for change, value in self.plan.steps)
        gain = f", {self.speedup.ratio:.2f}x" if self.speedup else ""
        return f"{self.model.name}, {chosen or 'nothing to change'}{gain}"
