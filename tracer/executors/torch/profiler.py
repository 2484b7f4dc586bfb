"""Run a module in torch, eagerly, and time every operator of every module, forward and backward.

torch's profiler records operators, in sessions of so many runs that what they recorded fits in
memory; hooks on the modules mark whose they are, and sequence numbers of autograd tell which
operator a backward pass belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from tracer.errors import UsageError
from tracer.executors.eager import rounds
from tracer.executors.eager.calls import Calls
from tracer.executors.eager.failure import failing_clearly
from tracer.executors.eager.profile import Cost, Measured, Profile, profile_of
from tracer.executors.eager.settings import EagerSettings
from tracer.executors.torch import calibration, objective, spans
from tracer.executors.torch.modules import watched
from tracer.executors.torch.state import preserved
from tracer.executors.torch.step import Step
from tracer.support.progress import Progress, silent

EXECUTOR = "torch"
_SESSION_SPANS = 100_000
"""Spans of one session of the profiler: some 100 MB."""


def profile(
    model: torch.nn.Module,
    arrays: Sequence[Any],
    options: EagerSettings,
    progress: Progress | None = None,
    executor: str = EXECUTOR,
    compiled: Callable[..., Any] | None = None,
) -> Profile:
    """Profile `model` on `arrays` (numpy, the batch first); it is left as it was found.

    `compiled`, a compiled form of `model`, is run in its stead where given; modules do not show
    in it. Raises InputError where the model does not run on the arrays, UsageError for a loss
    that does not suit its outputs or a device that is not there, LimitError out of memory.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "torch sees no CUDA device",
            "Leave --device out; where there is a card, its driver and a CUDA build of torch "
            "are needed.",
        )
    with preserved(model, options):
        step = _step(model, arrays, options, compiled)
        modules = nullcontext if compiled is not None else lambda: watched(model)
        recording = _Recording(step, spans.Session(options.device), modules)
        for _ in range(options.warmup):
            step.timed()
        recording.observe()
        report = progress or (silent)
        walls, recorded = rounds.alternate(
            options, step.timed, recording.runs, recording.most, report
        )
    cost = calibration.measure() if options.device == "cpu" else Cost(0.0, 0.0)
    measured = Measured(executor, options.device, arrays, walls, recorded, cost)
    return profile_of(recording.calls, measured)


def _step(
    model: torch.nn.Module,
    arrays: Sequence[Any],
    options: EagerSettings,
    compiled: Callable[..., Any] | None,
) -> Step:
    """A run of `model`, or of its compiled form; it is run once, of which anything may be wrong."""
    run = model if compiled is None else compiled
    inputs = [torch.tensor(array, device=options.device) for array in arrays]
    with failing_clearly(model, inputs), torch.set_grad_enabled(options.backward):
        outputs = run(*inputs)
    loss = objective.loss_for(outputs, options)
    if loss is not None:
        with failing_clearly(model, inputs):
            loss(outputs).backward()  # type: ignore[no-untyped-call]
    optimizer = objective.optimizer_for(model, options)
    return Step(run, inputs, tuple(model.parameters()), options.device, loss, optimizer)


@dataclass
class _Recording:
    """What torch's profiler recorded so far."""

    step: Step
    session: spans.Session
    modules: Callable[[], AbstractContextManager[None]]
    calls: Calls = field(default_factory=lambda: Calls("torch"))
    spans_per_run: int = 0

    def observe(self) -> None:
        """A run that also tells types and memory, and how many spans a run has."""
        self.step.clear()  # torch warns of memory that is freed and was allocated unseen
        with self.modules(), spans.Session(self.session.device, memory=True).recording() as seen:
            self.step.timed()
        found = spans.runs(seen, self.session.device)[0]
        self.spans_per_run = len(found)
        self.calls.observe(found)
        for row in self.calls.operations.values():
            row.peak_bytes = row.peak_bytes or 0

    def most(self) -> int:
        """Runs of one session."""
        return _SESSION_SPANS // max(1, self.spans_per_run)

    def runs(self, count: int) -> list[float]:
        """Record so many runs, after one that is not counted; the time of each, µs."""
        with self.modules(), self.session.recording() as seen:
            times = [self.step.timed() for _ in range(count + 1)]
        for run in spans.runs(seen, self.session.device)[1:]:
            self.calls.add(run)
        return times[1:]
