"""Runs a Chainer link and times every call of a function, forward and backward, by hooks.

Chainer's `TimerHook` accumulates over all runs. These hooks hand out the calls of each run apart.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, reduce, wraps
from operator import add
from typing import Any, TypeAlias

import chainer
import numpy as np
from threadpoolctl import threadpool_limits

from tracer.errors import UsageError
from tracer.executors.calls import Calls, Kind, Span, described
from tracer.executors.eager import Arrays, EagerExecutor, Overhead, failing_clearly
from tracer.executors.registry import FrameworkExecutor
from tracer.executors.settings import EagerSettings
from tracer.graph.tensor_type import TensorType
from tracer.records.trace import BACKWARD_PHASE
from tracer.support.measurements import RunTimer

_EMPTY_CALLS = 2000
_SUFFIX = "Function"
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
    settings: EagerSettings
    loss: Callable[[Any], chainer.Variable] | None
    optimizer: Any
    recorder: "CallRecorder"
    calls: Calls = field(default_factory=lambda: Calls("chainer"))

    def timed(self, phase: Mark = nullcontext, operator: Mark = nullcontext) -> float:
        """Makes one run, which marks its phases; returns its time, µs."""
        self.restore()
        self.model.cleargrads()
        start = time.perf_counter_ns()
        outputs = self.settings.call(self.model, self.arrays)
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
        with _Types(self.recorder), _Links(self.model, self.recorder):
            self.timed(self.recorder.phase, self.recorder.operator)
        self.calls.observe(self.recorder.take())

    def most_runs(self) -> int:
        return _BLOCK

    def runs(self, count: int) -> RunTimer:
        timer = RunTimer()
        with _Functions(self.recorder), _Links(self.model, self.recorder):
            for _ in range(count):
                timer.take(lambda: self.timed(self.recorder.phase, self.recorder.operator))
                self.calls.add(self.recorder.take())
        return timer

    def notes(self, wall_us: float) -> tuple[str, ...]:
        """Returns nothing: hooks tell no more than calls."""
        return ()


def _recording(model: chainer.Link, arrays: Arrays, settings: EagerSettings) -> _Recording:
    """Returns the runs of `model`, after a first run that may fail; frees its outputs."""
    restore = state_restorer(model, alone=True)
    restore()
    with failing_clearly(model, arrays):
        outputs = settings.call(model, [array.copy() for array in arrays])
    loss = loss_for(outputs, settings)
    if loss is not None:
        with failing_clearly(model, arrays):
            loss(outputs).backward()
    return _Recording(
        model, restore, arrays, settings, loss, optimizer_for(model, settings), recorder_of(model)
    )


class _Chainer(EagerExecutor[chainer.Link]):
    name = "chainer"
    compiled = None

    @contextmanager
    def opened(
        self, model: chainer.Link, arrays: Arrays, settings: EagerSettings
    ) -> Iterator[_Recording]:
        """Opens `model` on the CPU."""
        if settings.device != "cpu":
            raise UsageError(
                f"Chainer cannot use {settings.device} here",
                "It needs a CuPy as old as itself, which no Python that tracer runs on can "
                "install. Use --device cpu.",
            )
        with preserved(model, settings):
            yield _recording(model, arrays, settings)

    def overhead(self, settings: EagerSettings) -> Overhead:
        return measure_overhead()

    def parameters(self, model: chainer.Link) -> Iterator[tuple[str, int, bytes]]:
        """Yields name, number of elements and content of each parameter that has a shape, once."""
        names = sorted(model.namedparams(include_uninit=False), reverse=True)
        unique = {id(parameter): (name, parameter) for name, parameter in names}
        for name, parameter in sorted(unique.values()):
            yield name, parameter.size, parameter.array.tobytes()


@dataclass(slots=True)
class _Call:
    """An open or closed call; times in ns. It holds no array, which would extend its life."""

    kind: Kind
    name: str
    origin: int | None = None
    module: str | None = None
    start: int = 0
    end: int = 0
    inputs: tuple[TensorType, ...] = ()


@dataclass
class CallRecorder:
    """The calls of functions and links since the last `take`; `paths` and `owners` are by id.

    A function belongs to the link whose parameter it reads, by default to the running link.
    """

    paths: Mapping[int, str]
    owners: Mapping[int, str]
    calls: list[_Call] = field(default_factory=list)
    running: list[_Call] = field(default_factory=list)

    def begin(self, call: _Call) -> None:
        """Opens a call; reads the clock last."""
        self.calls.append(call)
        self.running.append(call)
        call.start = time.perf_counter_ns()

    def end(self) -> None:
        """Closes the call that was opened last; reads the clock first."""
        now = time.perf_counter_ns()
        self.running.pop().end = now

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Records a part of the run outside of links."""
        return self._around(_Call(Kind.PHASE, name))

    def operator(self, name: str) -> AbstractContextManager[None]:
        """Records work of Chainer outside of functions."""
        return self._around(_Call(Kind.FORWARD, name))

    @contextmanager
    def _around(self, call: _Call) -> Iterator[None]:
        self.begin(call)
        try:
            yield
        finally:
            self.end()

    def take(self) -> list[Span]:
        """Returns the spans so far and clears them."""
        spans = [
            Span(c.kind, c.name, c.start, c.end, 0, c.origin, c.module, inputs=c.inputs)
            for c in self.calls
        ]
        self.calls.clear()
        self.running.clear()
        return spans


def recorder_of(model: chainer.Link) -> CallRecorder:
    """Returns a CallRecorder for the links of `model` and the arrays of their parameters."""
    paths = {id(link): _dotted(name) for name, link in reversed(list(model.namedlinks()))}
    named = reversed(list(model.namedparams(include_uninit=False)))
    owners = {id(param.array): _dotted(name.rpartition("/")[0]) for name, param in named}
    return CallRecorder(paths, owners)


def _dotted(path: str) -> str:
    return path.strip("/").replace("/", ".")


class _Functions(chainer.FunctionHook):  # type: ignore[misc]
    """Records every function, forward and backward."""

    name = "tracer timing of functions"

    def __init__(self, recorder: CallRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def forward_preprocess(self, function: Any, in_data: Sequence[Any]) -> None:
        self._begin(Kind.FORWARD, function, in_data)

    def forward_postprocess(self, *_: Any) -> None:
        self._recorder.end()

    backward_postprocess = forward_postprocess

    def backward_preprocess(
        self, function: Any, in_data: Sequence[Any], out_grad: Sequence[Any]
    ) -> None:
        self._begin(Kind.BACKWARD, function, ())

    def _begin(self, kind: Kind, function: Any, reads: Sequence[Any]) -> None:
        own = getattr(function, "function", function)  # of an old-style Function's adapter
        name = type(own).__name__.removesuffix(_SUFFIX)
        owners = {self._recorder.owners.get(id(array)) for array in reads} - {None}
        module = owners.pop() if len(owners) == 1 else None
        self._recorder.begin(_Call(kind, name, id(function), module))


class _Types(_Functions):
    """Records the types of inputs too, which adds time to the calls."""

    name = "tracer types of functions"

    def forward_preprocess(self, function: Any, in_data: Sequence[Any]) -> None:
        super().forward_preprocess(function, in_data)
        given = (array for array in in_data if array is not None)  # some gradients are
        types = tuple(TensorType(array.dtype.name, array.shape) for array in given)
        self._recorder.running[-1].inputs = types


class LinkCalls(chainer.LinkHook):  # type: ignore[misc]
    """A hook on every call of a link of `model`.

    Chainer calls hooks in `Link.__call__`. A class that defines `__call__`, as code for Chainer
    before 5 does, hides that; while the hook is set, such classes of `model` call it themselves.
    """

    def __init__(self, model: chainer.Link) -> None:
        super().__init__()
        kinds = {type(link) for link in model.links()}
        self._kinds = [kind for kind in kinds if kind.__call__ is not chainer.Link.__call__]
        self._own: list[tuple[Any, Any]] = []

    def enter(self, link: chainer.Link) -> None:
        """Is called before a link."""
        raise NotImplementedError

    def leave(self) -> None:
        """Is called after a link."""
        raise NotImplementedError

    def forward_preprocess(self, args: Any) -> None:
        """Is called by Chainer before a link."""
        self.enter(args.link)

    def forward_postprocess(self, args: Any) -> None:
        """Is called by Chainer after a link."""
        self.leave()

    def added(self, link: chainer.Link | None) -> None:
        """Is called by Chainer as the hook is set."""
        self._own = [(kind, vars(kind).get("__call__")) for kind in self._kinds]
        hooked = [self._hooked(kind.__call__) for kind in self._kinds]
        for kind, call in zip(self._kinds, hooked, strict=True):
            kind.__call__ = call

    def deleted(self, link: chainer.Link | None) -> None:
        """Is called by Chainer as the hook is removed."""
        for kind, own in self._own:
            if own is None:
                del kind.__call__  # inherited
            else:
                kind.__call__ = own

    def _hooked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def hooked(link: chainer.Link, *args: Any, **kwargs: Any) -> Any:
            self.enter(link)
            outputs = call(link, *args, **kwargs)
            self.leave()
            return outputs

        return hooked


class _Links(LinkCalls):
    """Records the running link; a link outside the model counts as part of its caller."""

    name = "tracer timing of links"

    def __init__(self, model: chainer.Link, recorder: CallRecorder) -> None:
        super().__init__(model)
        self._recorder = recorder

    def enter(self, link: chainer.Link) -> None:
        path = self._recorder.paths.get(id(link))
        if path is None:
            calls = reversed(self._recorder.running)
            path = next((call.name for call in calls if call.kind is Kind.MODULE), "")
        self._recorder.begin(_Call(Kind.MODULE, path))

    def leave(self) -> None:
        self._recorder.end()


def state_restorer(model: chainer.Link, *, alone: bool = False) -> Callable[[], None]:
    """Returns a function that gives links the state they have now, as `h` and `c` of an LSTM.

    A state is an attribute that is None or a variable and no parameter; `alone`, variables come
    without the functions that computed them.
    """
    held = [
        (link, name, chainer.Variable(value.array, requires_grad=False))
        if alone and value is not None
        else (link, name, value)
        for link in model.links()
        for name, value in vars(link).items()
        if _may_be_state(value)
    ]

    def restore() -> None:
        for link, name, value in held:
            now = getattr(link, name)
            if now is not value and _may_be_state(now):
                setattr(link, name, value)

    return restore


def _may_be_state(value: Any) -> bool:
    variable = isinstance(value, chainer.Variable) and not isinstance(value, chainer.Parameter)
    return variable or value is None


@cache
def measure_overhead() -> Overhead:
    """Returns the interval that the hook records for an empty call, and the time outside it."""
    recorder = CallRecorder({}, {})
    hook = _Functions(recorder)
    function: Any = object()
    data = (np.ones(1, np.float32), np.ones(1, np.float32))
    calls = []
    for _ in range(_EMPTY_CALLS):
        start = time.perf_counter_ns()
        hook.forward_preprocess(function, data)
        hook.forward_postprocess(function, data)
        calls.append(time.perf_counter_ns() - start)
    inside = statistics.median(span.end - span.start for span in recorder.take())
    outside = max(0.0, statistics.median(calls) - inside)
    return Overhead(inside / 1e3, outside / 1e3)


executor: FrameworkExecutor[chainer.Link, Arrays, EagerSettings] = _Chainer()
