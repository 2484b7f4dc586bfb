"""Every call of a function and of a link, as it happens, by hooks of ours.

Chainer's `TimerHook` adds up whatever it has seen since it was made. Here what one run made is
taken away when it ends, so that the next starts from nothing.

This module imports Chainer, and is imported only by functions that are about to use it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import chainer

from tracer.executors.eager.calls import Kind, Span
from tracer.graph.tensor_type import TensorType

_SUFFIX = "Function"


@dataclass(slots=True)
class _Call:
    """An open or closed call; times in ns. It keeps nothing alive that the run would let go."""

    kind: Kind
    name: str
    origin: int | None = None
    module: str | None = None
    start: int = 0
    end: int = 0
    inputs: tuple[TensorType, ...] = ()


@dataclass
class Recorder:
    """What functions and links did since the last `take`. `paths` and `owners` are by id.

    A function that is given a link's parameter belongs to that link, another one to the link that
    is running.
    """

    paths: Mapping[int, str]
    owners: Mapping[int, str]
    calls: list[_Call] = field(default_factory=list)
    running: list[_Call] = field(default_factory=list)

    def begin(self, call: _Call) -> None:
        """Open a call; the clock is read last."""
        self.calls.append(call)
        self.running.append(call)
        call.start = time.perf_counter_ns()

    def end(self) -> None:
        """Close the call that was opened last; the clock is read first."""
        now = time.perf_counter_ns()
        self.running.pop().end = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A part of the run that is no link's."""
        with self._around(_Call(Kind.PHASE, name)):
            yield

    @contextmanager
    def operator(self, name: str) -> Iterator[None]:
        """Work that Chainer does outside of functions."""
        with self._around(_Call(Kind.FORWARD, name)):
            yield

    @contextmanager
    def _around(self, call: _Call) -> Iterator[None]:
        self.begin(call)
        try:
            yield
        finally:
            self.end()

    def take(self) -> list[Span]:
        """What was seen, which is forgotten."""
        found = [
            Span(c.kind, c.name, c.start, c.end, 0, c.origin, c.module, inputs=c.inputs)
            for c in self.calls
        ]
        self.calls.clear()
        self.running.clear()
        return found


class Functions(chainer.FunctionHook):  # type: ignore[misc]
    """Tells a Recorder of every function, forward and backward."""

    name = "tracer timing of functions"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def forward_preprocess(self, function: Any, in_data: Sequence[Any]) -> None:
        """A function is about to run."""
        self._begin(Kind.FORWARD, function, in_data)

    def forward_postprocess(self, function: Any, in_data: Sequence[Any]) -> None:
        """It has run."""
        self._recorder.end()

    def backward_preprocess(
        self, function: Any, in_data: Sequence[Any], out_grad: Sequence[Any]
    ) -> None:
        """Its gradient is about to be computed."""
        self._begin(Kind.BACKWARD, function, ())

    def backward_postprocess(
        self, function: Any, in_data: Sequence[Any], out_grad: Sequence[Any]
    ) -> None:
        """It is computed."""
        self._recorder.end()

    def _begin(self, kind: Kind, function: Any, reads: Sequence[Any]) -> None:
        own = getattr(function, "function", function)  # of an old-style Function's adapter
        name = type(own).__name__.removesuffix(_SUFFIX)
        owners = {self._recorder.owners.get(id(array)) for array in reads} - {None}
        module = owners.pop() if len(owners) == 1 else None
        self._recorder.begin(_Call(kind, name, id(function), module))


class Types(Functions):
    """Also tells of the inputs' types, which takes time that is no function's."""

    name = "tracer types of functions"

    def forward_preprocess(self, function: Any, in_data: Sequence[Any]) -> None:
        """A function is about to run."""
        super().forward_preprocess(function, in_data)
        types = tuple(TensorType(array.dtype.name, array.shape) for array in in_data)
        self._recorder.running[-1].inputs = types


class Links(chainer.LinkHook):  # type: ignore[misc]
    """Tells a Recorder which link is running; one that is not the model's is part of its caller."""

    name = "tracer timing of links"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def forward_preprocess(self, args: Any) -> None:
        """A link is about to run."""
        path = self._recorder.paths.get(id(args.link))
        if path is None:
            calls = reversed(self._recorder.running)
            path = next((call.name for call in calls if call.kind is Kind.MODULE), "")
        self._recorder.begin(_Call(Kind.MODULE, path))

    def forward_postprocess(self, args: Any) -> None:
        """It has run."""
        self._recorder.end()


def recorder_of(model: chainer.Link) -> Recorder:
    """A Recorder that knows the links of `model` and the arrays of their parameters."""
    paths = {id(link): _dotted(name) for name, link in reversed(list(model.namedlinks()))}
    named = reversed(list(model.namedparams(include_uninit=False)))
    owners = {id(param.array): _dotted(name.rpartition("/")[0]) for name, param in named}
    return Recorder(paths, owners)


def _dotted(path: str) -> str:
    return path.strip("/").replace("/", ".")
