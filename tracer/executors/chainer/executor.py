"""Runs a Chainer link and times every call of a function, forward and backward, by hooks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import chainer
import numpy as np
from threadpoolctl import threadpool_limits

from tracer.errors import UsageError
from tracer.executors.calls import BACKWARD_PHASE, Calls, described
from tracer.executors.chainer import hooks
from tracer.executors.chainer.hooks import CallRecorder, Functions, Links, Types, state_restorer
from tracer.executors.eager import Arrays, EagerExecutor, Overhead, failing_clearly
from tracer.executors.protocol import FrameworkExecutor
from tracer.executors.settings import EagerSettings
from tracer.support.timing import RunTimer

_LEARNING_RATE = 1e-3

_BLOCK = 100
"""Most recorded runs between undisturbed runs."""


Mark: TypeAlias = Callable[[str], AbstractContextManager[object]]


def loss_for(outputs: Any, settings: EagerSettings) -> Callable[[Any], chainer.Variable] | None:
    """Returns the loss for a model with these `outputs`; None without a backward pass.

    `sum` adds all outputs that have a gradient. `cross-entropy` compares the first output,
    [N, classes, …], with random targets. Raises UsageError for outputs that do not suit.
    """
    if not settings.backward:
        return None
    if not _differentiable(outputs):
        raise UsageError(
            "no output of the model has a gradient",
            "Leave --backward out, or let the model return outputs of Chainer functions.",
        )
    if settings.loss != "cross-entropy":
        return lambda results: reduce(add, map(chainer.functions.sum, _differentiable(results)))
    first = _differentiable(outputs)[0]
    if first.ndim < 2:
        raise UsageError(
            f"cross-entropy needs an output [N, classes, …], and the first is {described(first)}",
            "Give --loss sum.",
        )
    shape = (first.shape[0], *first.shape[2:])
    targets = np.random.default_rng(settings.seed).integers(first.shape[1], size=shape)
    targets = targets.astype(np.int32)
    entropy = chainer.functions.softmax_cross_entropy
    return lambda results: entropy(_differentiable(results)[0], targets)


def _differentiable(outputs: Any) -> list[Any]:
    """Returns the outputs with a gradient; a model returns one, a list, a tuple or a dict."""
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    values = outputs if isinstance(outputs, list | tuple) else [outputs]
    return [v for v in values if isinstance(v, chainer.Variable) and v.creator_node is not None]


def optimizer_for(model: chainer.Link, settings: EagerSettings) -> Any:
    """Returns the optimizer, set up for `model`; None if not set."""
    if settings.optimizer is None:
        return None
    kinds = {"sgd": chainer.optimizers.SGD, "adam": chainer.optimizers.Adam}
    return kinds[settings.optimizer](_LEARNING_RATE).setup(model)


@contextmanager
def preserved(model: chainer.Link, settings: EagerSettings) -> Iterator[None]:
    """Sets test mode or, with `settings`, training mode; seeds; limits BLAS to `threads`.

    At the end it restores the gradients, parameters, update rules, persistent values and states of
    `model`, and the random generators of dropout.
    """
    params = [(p, p.grad_var, p.update_rule) for p in model.params() if p.array is not None]
    arrays = [p.array for p, _, _ in params] if settings.optimizer else []
    held = [
        (link, name, getattr(link, name))
        for link in model.links()
        for name in sorted(link._persistent)
    ]
    arrays += [value for _, _, value in held if isinstance(value, np.ndarray)]
    copies = [(array, array.copy()) for array in arrays if settings.training]
    states = np.random.get_state(), random.getstate()
    restore = state_restorer(model)
    try:
        np.random.seed(settings.seed)
        for param, _, _ in params:
            param.cleargrad()
        with (
            threadpool_limits(settings.threads or None),
            chainer.using_config("train", settings.training),
            chainer.using_config("enable_backprop", settings.training),
        ):
            yield
    finally:
        restore()
        for array, copy in copies:
            array[...] = copy
        for link, name, value in held:
            setattr(link, name, value)
        for param, gradient, rule in params:
            param.grad_var, param.update_rule = gradient, rule
        np.random.set_state(states[0])
        random.setstate(states[1])


@dataclass(frozen=True, slots=True)
class _Recording:
    """Runs of `model` on `arrays`; with `loss` training steps, which end with `optimizer`.

    `restore` gives links the state that every run begins with. `calls` are those that the hooks
    have recorded so far.
    """

    model: chainer.Link
    restore: Callable[[], None]
    arrays: Arrays
    loss: Callable[[Any], chainer.Variable] | None
    optimizer: Any
    recorder: CallRecorder
    calls: Calls = field(default_factory=lambda: Calls("chainer"))

    def timed(self, phase: Mark = nullcontext, operator: Mark = nullcontext) -> float:
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

    def observe(self) -> None:
        """Records the types of functions' inputs in a run of its own."""
        with Types(self.recorder), Links(self.model, self.recorder):
            self.timed(self.recorder.phase, self.recorder.operator)
        self.calls.observe(self.recorder.take())

    def most_runs(self) -> int:
        """Returns the most runs between undisturbed ones."""
        return _BLOCK

    def runs(self, count: int) -> RunTimer:
        """Records `count` runs; returns their times."""
        timer = RunTimer()
        with Functions(self.recorder), Links(self.model, self.recorder):
            for _ in range(count):
                timer.take(lambda: self.timed(self.recorder.phase, self.recorder.operator))
                self.calls.add(self.recorder.take())
        return timer


class _Chainer(EagerExecutor[chainer.Link]):
    name = "chainer"
    compiled = None

    @contextmanager
    def opened(
        self, model: chainer.Link, arrays: Arrays, settings: EagerSettings
    ) -> Iterator[_Recording]:
        """Opens `model` on the CPU after a first run, which may fail."""
        with preserved(model, settings):
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
            loss = loss_for(outputs, settings)
            if loss is not None:
                with failing_clearly(model, arrays):
                    loss(outputs).backward()
            optimizer = optimizer_for(model, settings)
            recorder = hooks.recorder_of(model)
            yield _Recording(model, restore, arrays, loss, optimizer, recorder)

    def overhead(self, settings: EagerSettings) -> Overhead:
        """Returns the overhead of recording a call."""
        return hooks.measure_overhead()

    def parameters(self, model: chainer.Link) -> Iterator[tuple[str, int, bytes]]:
        """Yields name, number of elements and content of each parameter that has a shape, once."""
        names = sorted(model.namedparams(include_uninit=False), reverse=True)
        unique = {id(parameter): (name, parameter) for name, parameter in names}
        for name, parameter in sorted(unique.values()):
            yield name, parameter.size, parameter.array.tobytes()


executor: FrameworkExecutor[chainer.Link, Arrays, EagerSettings] = _Chainer()
