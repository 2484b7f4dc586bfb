"""Run a module in torch, eagerly, and time every operator of every module, forward and backward.

torch's profiler records operators, in sessions of so many runs that what they recorded fits in
memory; hooks on the modules mark whose they are, and sequence numbers of autograd tell which
operator a backward pass belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from tracer.errors import UsageError
from tracer.executors.eager import rounds
from tracer.executors.eager.calls import Calls
from tracer.executors.eager.failure import failing_clearly
from tracer.executors.eager.profile import Cost, Measured, profile_of
from tracer.executors.eager.settings import EagerSettings
from tracer.executors.protocol import FrameworkExecutor, Profiled
from tracer.executors.torch import calibration, objective, spans
from tracer.executors.torch.modules import watched
from tracer.executors.torch.state import preserved
from tracer.executors.torch.step import Step
from tracer.support.progress import Progress, silent

_SESSION_SPANS = 100_000
"""Spans of one session of the profiler: some 100 MB."""


def _profile(
    name: str,
    model: torch.nn.Module,
    compiled: Callable[..., Any] | None,
    arrays: Sequence[Any],
    settings: EagerSettings,
    progress: Progress,
) -> Profiled:
    """Profiles `model`, or its `compiled` form, in which modules do not show."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "torch sees no CUDA device",
            "Leave --device out; where there is a card, its driver and a CUDA build of torch "
            "are needed.",
        )
    with preserved(model, settings):
        step = _step(model, arrays, settings, compiled)
        modules = nullcontext if compiled is not None else lambda: watched(model)
        recording = _Recording(step, spans.Session(settings.device), modules)
        for _ in range(settings.warmup):
            step.timed()
        recording.observe()
        walls, recorded = rounds.alternate(
            settings, step.timed, recording.runs, recording.most, progress
        )
    cost = calibration.measure() if settings.device == "cpu" else Cost(0.0, 0.0)
    measured = Measured(name, settings.device, arrays, walls, recorded, cost)
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


class _Compiled:
    settings = EagerSettings

    def profile(
        self,
        model: torch.nn.Module,
        arrays: Sequence[Any],
        settings: EagerSettings,
        progress: Progress = silent,
    ) -> Profiled:
        """Profiles what torch.compile makes of `model`; raises what the compiler raises."""
        torch._dynamo.reset()  # what an earlier batch compiled would be made dynamic
        options: dict[str, Any] = {"cpp.enable_kernel_profile": True}
        compiled: Callable[..., Any] = torch.compile(model, dynamic=False, options=options)
        return _profile("torch-compile", model, compiled, arrays, settings, progress)


class _Torch:
    settings = EagerSettings
    compiled = _Compiled()

    def profile(
        self,
        model: torch.nn.Module,
        arrays: Sequence[Any],
        settings: EagerSettings,
        progress: Progress = silent,
    ) -> Profiled:
        """Profiles `model` on `arrays` (numpy, the batch first); restores the model afterwards.

        Raises InputError where the model does not run on the arrays, UsageError for a loss that
        does not suit its outputs or an absent device, LimitError out of memory.
        """
        return _profile("torch", model, None, arrays, settings, progress)

    def parameters(self, model: torch.nn.Module) -> Iterator[tuple[str, int, bytes]]:
        """Yields name, number of elements and content of each parameter, a shared one once."""
        for name, parameter in model.named_parameters():
            flat = parameter.detach().cpu().contiguous().reshape(-1)
            yield name, parameter.numel(), flat.view(torch.uint8).numpy().tobytes()


executor: FrameworkExecutor[torch.nn.Module, Sequence[Any], EagerSettings] = _Torch()
