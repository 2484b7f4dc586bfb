"""Runs a Chainer link and times every call of a function, forward and backward, by hooks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import chainer

from tracer.errors import UsageError
from tracer.executors.chainer import calibration, hooks, objective
from tracer.executors.chainer.hooks import CallRecorder, Functions, Links, Types
from tracer.executors.chainer.links import state_restorer
from tracer.executors.chainer.state import preserved
from tracer.executors.eager import rounds
from tracer.executors.eager.calls import BACKWARD_PHASE, Calls
from tracer.executors.eager.failure import failing_clearly
from tracer.executors.eager.profile import Arrays, Measured, profile_of
from tracer.executors.eager.settings import EagerSettings
from tracer.executors.eager.turns import recorder
from tracer.executors.measuring import warm_up
from tracer.executors.precision import use_of
from tracer.executors.protocol import FrameworkExecutor, Profiled
from tracer.executors.turns import Recorder
from tracer.support.progress import Progress
from tracer.support.timing import Moment, RunTimer

_BLOCK = 100
"""Most recorded runs between undisturbed runs."""


Mark = Callable[[str], AbstractContextManager[object]]


def _unmarked(name: str) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class _Step:
    """A run of `model` on `arrays`; with `loss` a training step, which ends with `optimizer`.

    `restore` gives links the state that every run begins with.
    """

    model: chainer.Link
    restore: Callable[[], None]
    arrays: Arrays
    loss: Callable[[Any], chainer.Variable] | None
    optimizer: Any

    def timed(self, phase: Mark = _unmarked, operator: Mark = _unmarked) -> float:
        """Makes one run, which marks its phases; returns its time, µs."""
        self.restore()
        self.model.cleargrads()
        start = time.perf_counter_ns()
        outputs = self.model(*self.arrays)
        if self.loss is not None:
            with phase("loss"):
                loss = self.loss(outputs)
            with phase(BACKWARD_PHASE):
                loss.backward()
            if self.optimizer is not None:
                with phase("optimizer"), operator(f"{type(self.optimizer).__name__}.update"):
                    self.optimizer.update()
        return (time.perf_counter_ns() - start) / 1e3


def _step(model: chainer.Link, arrays: Arrays, settings: EagerSettings) -> _Step:
    """Returns a step of `model`, after a first run that may fail."""
    if settings.device != "cpu":
        raise UsageError(
            f"Chainer cannot use {settings.device} here",
            "It needs a CuPy as old as itself, which no Python that tracer runs on can "
            "install. Use --device cpu.",
        )
    restore = state_restorer(model, alone=True)
    restore()
    with failing_clearly(model, arrays):
        outputs = model(*(array.copy() for array in arrays))
    loss = objective.loss_for(outputs, settings)
    if loss is not None:
        with failing_clearly(model, arrays):
            loss(outputs).backward()
    return _Step(model, restore, arrays, loss, objective.optimizer_for(model, settings))


@dataclass
class _Recording:
    """The calls that the hooks have recorded so far."""

    step: _Step
    recorder: CallRecorder
    calls: Calls = field(default_factory=lambda: Calls("chainer"))

    def observe(self) -> None:
        """Records the types of functions' inputs in a run of its own."""
        with Types(self.recorder), Links(self.step.model, self.recorder):
            self.step.timed(self.recorder.phase, self.recorder.operator)
        self.calls.observe(self.recorder.take())

    def runs(self, count: int) -> RunTimer:
        """Records `count` runs; returns their times."""
        timer = RunTimer()
        with Functions(self.recorder), Links(self.step.model, self.recorder):
            for _ in range(count):
                timer.take(lambda: self.step.timed(self.recorder.phase, self.recorder.operator))
                self.calls.add(self.recorder.take())
        return timer


class _Chainer:
    settings = EagerSettings
    compiled = None

    def profile(
        self, model: chainer.Link, arrays: Arrays, settings: EagerSettings, progress: Progress
    ) -> Profiled:
        """Profiles `model` on `arrays` (numpy, the batch first); restores the model afterwards.

        Raises InputError where the model does not run on the arrays, UsageError for a loss that
        does not suit its outputs or a device other than the CPU, LimitError out of memory.
        """
        with preserved(model, settings):
            step = _step(model, arrays, settings)
            warm_up(step.timed, settings, progress)
            recording = _Recording(step, hooks.recorder_of(model))
            recording.observe()
            began = Moment.now()
            walls, recorded = rounds.alternate(
                settings,
                step.timed,
                recording.runs,
                lambda: _BLOCK,
                recording.calls.samples,
                progress,
            )
        notes = settings.notes(len(recorded.us), sum(recorded.us) / 1e6)
        bias = calibration.measure()
        use = use_of(walls, recorded, began)
        measured = Measured("chainer", "cpu", arrays, walls.us, recorded.us, bias, notes, use)
        return profile_of(recording.calls, measured)

    @contextmanager
    def ready(
        self, model: chainer.Link, arrays: Arrays, settings: EagerSettings
    ) -> Iterator[Callable[[], float]]:
        """Runs `model` once; inside the block a call times one step, in µs."""
        with preserved(model, settings):
            yield _step(model, arrays, settings).timed

    @contextmanager
    def recording(
        self, model: chainer.Link, arrays: Arrays, settings: EagerSettings
    ) -> Iterator[Recorder]:
        """Runs `model` once; the profiler is on in recorded runs only."""
        with preserved(model, settings):
            step = _step(model, arrays, settings)
            recording = _Recording(step, hooks.recorder_of(model))
            yield recorder(step.timed, recording.runs, recording.calls)

    def parameters(self, model: chainer.Link) -> Iterator[tuple[str, int, bytes]]:
        """Yields name, number of elements and content of each parameter that has a shape, once."""
        names = sorted(model.namedparams(include_uninit=False), reverse=True)
        unique = {id(parameter): (name, parameter) for name, parameter in names}
        for name, parameter in sorted(unique.values()):
            yield name, parameter.size, parameter.array.tobytes()


executor: FrameworkExecutor[chainer.Link, Arrays, EagerSettings] = _Chainer()
