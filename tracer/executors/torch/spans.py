"""From what torch's profiler recorded to spans, run by run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch._C._autograd import DeviceType
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.profiler import profile

from tracer.executors.eager.calls import Kind, Span
from tracer.graph.tensor_type import TensorType

RUN, MODULE, PHASE = "tracer:run", "tracer:module:", "tracer:phase:"
"""Our own marks among the names that the profiler records."""

_MEMORY = "[memory]"
_BACKWARD = "autograd::engine::evaluate_function: "
_LAUNCHES = ("cuda", "cu", "hip")
"""Calls of an accelerator's runtime, which are part of the operator that makes them."""

_AROUND = ("Torch-Compiled Region", "## Call CompiledFxGraph", "AOTDispatcher Runtime Wrapper")
"""What torch.compile puts around the operators that it calls."""

_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long": "int64", "long int": "int64", "long long": "int64", "int": "int32", "short": "int16",
    "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
}  # fmt: skip
"""The profiler tells types by their names in C++."""


@dataclass(frozen=True, slots=True)
class Session:
    """How to record: `memory` also tells input types and allocations, and costs more."""

    device: str = "cpu"
    memory: bool = False

    @contextmanager
    def recording(self) -> Iterator[profile]:
        """Record what is run inside; `runs` reads it afterwards."""
        # Kineto announces every start and stop on stderr unless it is told not to.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        device = None if self.device == "cpu" else self.device
        with profile(
            use_kineto=True,
            use_device=device,
            record_shapes=self.memory,
            profile_memory=self.memory,
        ) as recorded:
            yield recorded


def mark(name: str) -> Any:
    """A context that the profiler records by `name`; cheap where nothing records."""
    return _RecordFunctionFast(name)


def phase(name: str) -> Any:
    """A context for a part of the run that is no module's."""
    return mark(PHASE + name)


def runs(recorded: profile, device: str = "cpu") -> list[list[Span]]:
    """The spans of every run that `RUN` marks; what lies outside of a run is left out."""
    result = recorded.kineto_results
    assert result is not None
    events = [event for event in result.events() if not event.is_hidden_event()]
    host = [event for event in events if event.device_type() == DeviceType.CPU]
    times = _device_times(events) if device != "cpu" else None
    windows = sorted((e.start_ns(), e.end_ns()) for e in host if e.name() == RUN)
    found: list[list[Span]] = [[] for _ in windows]
    position = 0
    for event in sorted(host, key=lambda e: e.start_ns()):
        while position < len(windows) and event.start_ns() >= windows[position][1]:
            position += 1
        if position < len(windows) and event.start_ns() >= windows[position][0]:
            found[position] += _spans(event, times)
    return found


def _spans(event: Any, times: Mapping[int, int] | None) -> Iterator[Span]:
    name = event.name()
    start, thread = event.start_ns(), event.start_thread_id()
    if name == _MEMORY:
        yield Span(Kind.MEMORY, name, start, start, thread, nbytes=event.nbytes())
        return
    kind, shown, origin = Kind.FORWARD, name, event.sequence_nr()
    if name.startswith(MODULE):
        kind, shown = Kind.MODULE, name.removeprefix(MODULE)
    elif name.startswith(PHASE):
        kind, shown = Kind.PHASE, name.removeprefix(PHASE)
    elif name.startswith(_BACKWARD):
        kind = Kind.BACKWARD
    elif name.startswith((RUN, *_AROUND)) or (times is not None and name.startswith(_LAUNCHES)):
        return
    yield Span(
        kind,
        shown,
        start,
        event.end_ns(),
        thread,
        origin if origin >= 0 else None,
        device_ns=None if times is None else times.get(event.correlation_id(), 0),
        inputs=_types(event.shapes(), event.dtypes()),
    )


def _device_times(events: Sequence[Any]) -> Mapping[int, int]:
    """ns on the accelerator by the correlation of the operator that launched the work."""
    times: dict[int, int] = defaultdict(int)
    for event in events:
        drawn_again = event.is_user_annotation()  # a mark of ours over the kernels inside it
        if event.device_type() != DeviceType.CPU and not drawn_again:
            times[event.linked_correlation_id()] += event.duration_ns()
    return times


def _types(shapes: Sequence[Any], dtypes: Sequence[str]) -> tuple[TensorType, ...]:
    """Types of the tensors among the arguments, which lists of tensors and scalars are not."""
    found = []
    for shape, dtype in zip(shapes, dtypes, strict=False):
        if dtype in _DTYPES and all(isinstance(size, int) for size in shape):
            found.append(TensorType(_DTYPES[dtype], tuple(shape)))
    return tuple(found)
