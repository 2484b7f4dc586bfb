"""Hooks that record every call of a function and of a link in Chainer.

Chainer's `TimerHook` accumulates over all runs. These hooks hand out the calls of each run apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import chainer

from tracer.executors.chainer.links import LinkCalls
from tracer.executors.eager.calls import Kind, Span
from tracer.graph.tensor_type import TensorType

_SUFFIX = "Function"


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


class Functions(chainer.FunctionHook):  # type: ignore[misc]
    """Records every function, forward and backward."""

    name = "tracer timing of functions"

    def __init__(self, recorder: CallRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def forward_preprocess(self, function: Any, in_data: Sequence[Any]) -> None:
        """Opens the call of a function."""
        self._begin(Kind.FORWARD, function, in_data)

    def forward_postprocess(self, *_: Any) -> None:
        """Closes the call."""
        self._recorder.end()

    backward_postprocess = forward_postprocess

    def backward_preprocess(
        self, function: Any, in_data: Sequence[Any], out_grad: Sequence[Any]
    ) -> None:
        """Opens the call of a gradient."""
        self._begin(Kind.BACKWARD, function, ())

    def _begin(self, kind: Kind, function: Any, reads: Sequence[Any]) -> None:
        own = getattr(function, "function", function)  # of an old-style Function's adapter
        name = type(own).__name__.removesuffix(_SUFFIX)
        owners = {self._recorder.owners.get(id(array)) for array in reads} - {None}
        module = owners.pop() if len(owners) == 1 else None
        self._recorder.begin(_Call(kind, name, id(function), module))


class Types(Functions):
    """Records the types of inputs too, which adds time to the calls."""

    name = "tracer types of functions"

    def forward_preprocess(self, function: Any, in_data: Sequence[Any]) -> None:
        """Opens the call of a function."""
        super().forward_preprocess(function, in_data)
        given = (array for array in in_data if array is not None)  # some gradients are
        types = tuple(TensorType(array.dtype.name, array.shape) for array in given)
        self._recorder.running[-1].inputs = types


class Links(LinkCalls):
    """Records the running link; a link outside the model counts as part of its caller."""

    name = "tracer timing of links"

    def __init__(self, model: chainer.Link, recorder: CallRecorder) -> None:
        super().__init__(model)
        self._recorder = recorder

    def enter(self, link: chainer.Link) -> None:
        """Opens the call of a link."""
        path = self._recorder.paths.get(id(link))
        if path is None:
            calls = reversed(self._recorder.running)
            path = next((call.name for call in calls if call.kind is Kind.MODULE), "")
        self._recorder.begin(_Call(Kind.MODULE, path))

    def leave(self) -> None:
        """Closes the call."""
        self._recorder.end()


def recorder_of(model: chainer.Link) -> CallRecorder:
    """Returns a CallRecorder for the links of `model` and the arrays of their parameters."""
    paths = {id(link): _dotted(name) for name, link in reversed(list(model.namedlinks()))}
    named = reversed(list(model.namedparams(include_uninit=False)))
    owners = {id(param.array): _dotted(name.rpartition("/")[0]) for name, param in named}
    return CallRecorder(paths, owners)


def _dotted(path: str) -> str:
    return path.strip("/").replace("/", ".")
