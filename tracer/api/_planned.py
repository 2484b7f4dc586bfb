"""The model and settings of a profile by a plan that `tracer.tune` chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.errors import UsageError
from tracer.exporters.subject import ModelSource
from tracer.graph.model import Model
from tracer.inputs.request import InputPaths, Samples, request_for
from tracer.tuning import plan as plans
from tracer.tuning.setup import Machine, Setup


@dataclass(frozen=True, slots=True)
class Start:
    """The model of a profile, its batch sizes, and the settings of its runs.

    `notes` tell of a plan and how it fits here; `tuned` owns the files of a model that it changed.
    """

    model: Model
    batch: int | Sequence[int] | None
    settings: list[Any]
    notes: tuple[str, ...] = ()
    tuned: Setup | None = None


def refuse_phases(phases: object) -> None:
    """Raises UsageError where a plan is given for the phases of a language model."""
    if phases is not None:
        raise UsageError(
            "a plan is for runs on the same inputs, and phases feed their own",
            "Leave out --plan, or --prefill and --decode.",
        )


def by_plan(
    path: Path,
    subject: ModelSource,
    start: Start,
    dims: Mapping[str, int] | None,
    feeds: InputPaths | Samples,
    seed: int,
) -> Start:
    """Returns the model with the changes of the plan at `path`, made on its inputs.

    Raises UsageError for several batch sizes or settings beside a plan, InputError for a file that
    is no plan, and the errors of the changes.
    """
    if len(start.settings) > 1 or isinstance(start.batch, Sequence):
        raise UsageError(
            "a plan sets threads, optimisation and provider, and fits one batch size",
            "Give one of each beside --plan.",
        )
    plan = plans.read_plan(path)
    batch = plans.batch_of(plan) if start.batch is None else start.batch
    feedset = request_for(subject, start.model, batch, dims, feeds, seed).first_batch().feeds()
    before = Setup(start.model.executed, feedset, start.settings[0])
    steps = ", ".join(f"{change}={value}" for change, value in plan.steps) or "no change"
    notes = (f"tuned: {steps}", *plans.differences(plan, before, Machine.this()))
    tuned = plans.apply_plan(plan, before)
    return Start(tuned.model, batch, [tuned.settings], notes, tuned)
