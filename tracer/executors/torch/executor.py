"""Runs a PyTorch module and times every operator of every module, forward and backward.

torch's profiler records operators, in sessions whose records fit in memory. Hooks mark the module
of each operator; autograd's sequence numbers join backward operators to forward operators.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from tracer.errors import UsageError
from tracer.executors.eager import rounds
from tracer.executors.eager.calls import RANGE, Calls
from tracer.executors.eager.failure import failing_clearly
from tracer.executors.eager.profile import Arrays, Measured, Overhead, profile_of
from tracer.executors.eager.settings import EagerSettings
from tracer.executors.eager.turns import recorder
from tracer.executors.measuring import warm_up
from tracer.executors.precision import use_of
from tracer.executors.protocol import FrameworkExecutor, Profiled
from tracer.executors.torch import calibration, objective, spans
from tracer.executors.torch.state import preserved
from tracer.executors.torch.step import Step
from tracer.executors.turns import Recorder
from tracer.support.progress import Progress
from tracer.support.timing import Moment, RunTimer

_SESSION_SPANS = 100_000
"""Most spans of one session of the profiler: some 100 MB."""


def _profile(
    name: str,
    model: torch.nn.Module,
    compiled: Callable[..., Any] | None,
    arrays: Arrays,
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
        modules = nullcontext if compiled is not None else lambda: spans.marked(model)
        recording = _Recording(step, spans.Session(settings.device), modules)
        warm_up(step.timed, settings, progress)
        recording.observe()
        began = Moment.now()
        walls, recorded = rounds.alternate(
            settings, step.timed, recording.runs, recording.most, recording.calls.samples, progress
        )
    overhead = calibration.measure() if settings.device == "cpu" else Overhead(0.0, 0.0)
    notes = settings.notes(len(recorded.us), sum(recorded.us) / 1e6)
    use = use_of(walls, recorded, began)
    measured = Measured(name, settings.device, arrays, walls.us, recorded.us, overhead, notes, use)
    return profile_of(recording.calls, measured)


def _step(
    model: torch.nn.Module,
    arrays: Arrays,
    settings: EagerSettings,
    compiled: Callable[..., Any] | None,
) -> Step:
    """Returns a step of `model`, or of its compiled form, after a first run that may fail."""
    run = model if compiled is None else compiled
    inputs = [torch.tensor(array, device=settings.device) for array in arrays]
    with failing_clearly(model, inputs), torch.set_grad_enabled(settings.training):
        outputs = run(*inputs)
    loss = objective.loss_for(outputs, settings)
    if loss is not None:
        with failing_clearly(model, inputs):
            loss(outputs).backward()  # type: ignore[no-untyped-call]
    optimizer = objective.optimizer_for(model, settings)
    return Step(
        run, inputs, tuple(model.parameters()), settings.device, settings.training, loss, optimizer
    )


@dataclass
class _Recording:
    """The calls that torch's profiler has recorded so far."""

    step: Step
    session: spans.Session
    modules: Callable[[], AbstractContextManager[None]]
    calls: Calls = field(default_factory=lambda: Calls("torch"))
    spans_per_run: int = 0

    def observe(self) -> None:
        """Records types and memory in a run of its own, and counts the spans of a run."""
        self.step.clear()  # torch warns when memory is freed that was not allocated in the session
        with self.modules(), spans.Session(self.session.device, memory=True).recording() as profile:
            self.step.timed()
        run = spans.runs(profile, self.session.device)[0]
        self.spans_per_run = len(run)
        self.calls.observe(run)
        for row in self.calls.operations.values():
            if row.op_type != RANGE:  # memory belongs to the operators inside
                row.peak_bytes = row.peak_bytes or 0

    def most(self) -> int:
        """Returns the most runs of one session."""
        return _SESSION_SPANS // max(1, self.spans_per_run)

    def runs(self, count: int) -> RunTimer:
        """Records `count` runs, after one that is not counted; returns their times."""
        timer = RunTimer()
        with self.modules(), self.session.recording() as profile:
            self.step.timed()
            for _ in range(count):
                timer.take(self.step.timed)
        for run in spans.runs(profile, self.session.device)[1:]:
            self.calls.add(run)
        return timer


class _Compiled:
    settings = EagerSettings

    def profile(
        self, model: torch.nn.Module, arrays: Arrays, settings: EagerSettings, progress: Progress
    ) -> Profiled:
        """Profiles `model` after torch.compile; raises the errors of the compiler too."""
        torch._dynamo.reset()  # else the compiler makes shapes of an earlier batch dynamic
        options: dict[str, Any] = {"cpp.enable_kernel_profile": True}
        compiled: Callable[..., Any] = torch.compile(model, dynamic=False, options=options)
        return _profile("torch-compile", model, compiled, arrays, settings, progress)


class _Torch:
    settings = EagerSettings
    compiled = _Compiled()

    def profile(
        self, model: torch.nn.Module, arrays: Arrays, settings: EagerSettings, progress: Progress
    ) -> Profiled:
        """Profiles `model` on `arrays` (numpy, the batch first); restores the model afterwards.

        Raises InputError where the model does not run on the arrays, UsageError for a loss that
        does not suit its outputs or an absent device, LimitError out of memory.
        """
        return _profile("torch", model, None, arrays, settings, progress)

    @contextmanager
    def ready(
        self, model: torch.nn.Module, arrays: Arrays, settings: EagerSettings
    ) -> Iterator[Callable[[], float]]:
        """Runs `model` once; inside the block a call times one step, in µs."""
        with preserved(model, settings):
            yield _step(model, arrays, settings, None).timed

    @contextmanager
    def recording(
        self, model: torch.nn.Module, arrays: Arrays, settings: EagerSettings
    ) -> Iterator[Recorder]:
        """Runs `model` once; the profiler is on in recorded runs only."""
        with preserved(model, settings):
            step = _step(model, arrays, settings, None)
            recording = _Recording(
                step, spans.Session(settings.device), lambda: spans.marked(model)
            )
            yield recorder(step.timed, recording.runs, recording.calls)

    def parameters(self, model: torch.nn.Module) -> Iterator[tuple[str, int, bytes]]:
        """Yields name, number of elements and content of each parameter, a shared one once."""
        for name, parameter in model.named_parameters():
            flat = parameter.detach().cpu().contiguous().reshape(-1)
            yield name, parameter.numel(), flat.view(torch.uint8).numpy().tobytes()


executor: FrameworkExecutor[torch.nn.Module, Arrays, EagerSettings] = _Torch()
