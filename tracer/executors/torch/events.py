"""Reads the events that torch's profiler recorded, as spans of runs with their marks.

Kineto numbers operators apart from the calls of an accelerator's runtime. Work of the accelerator
has the number of its call as its own, and is linked to the innermost operator around the call, to 0
where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile

from tracer.executors.calls import Kind, Launch, Span, Work
from tracer.executors.device import launched
from tracer.executors.foreign.torch_trace import BACKWARD, tensor_types

RUN, MODULE, PHASE = "tracer:run", "tracer:module:", "tracer:phase:"
"""Marks of this package among the names in the profile."""
_MEMORY = "[memory]"
_LAUNCH = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*")
"""A call of an accelerator's runtime or driver, which counts for the calling operator."""
_WAITING = re.compile(r" Sync$|^Stream Wait Event$")
"""An accelerator waits for an event, a stream or all work: Kineto records it on request."""
_OVERHEAD = (
    "Activity Buffer Request", "Buffer Flush", "Command Buffer Full", "Driver Compiler",
    "Instrumentation", "Lazy Function Loading", "Resource", "Runtime Triggered Module Loading",
    "UVM Activity Init", "Unrecognized", "Unknown",
)  # fmt: skip
"""What CUPTI itself and the loading of kernels cost, by the names that Kineto gives."""
_AROUND = ("Torch-Compiled Region", "## Call CompiledFxGraph", "AOTDispatcher Runtime Wrapper")
"""Names of spans that torch.compile puts around the operators it calls."""
_OPTIMIZER = "Optimizer."
"""Begins the names of ranges that torch itself puts around the steps of optimizers."""


def runs(recorded: profile, device: str = "cpu") -> list[list[Span]]:
    """Returns the spans of every run that `RUN` marks, without spans outside of runs.

    With a `device` other than the CPU, its work is among the spans, where it was launched.
    """
    result = recorded.kineto_results
    assert result is not None
    events = [event for event in result.events() if not event.is_hidden_event()]
    host = [event for event in events if event.device_type() == DeviceType.CPU]
    windows = sorted((e.start_ns(), e.end_ns()) for e in host if e.name() == RUN)
    if device == "cpu":
        found = [span for event in host for span in _spans(event)]
    else:
        memory = [e for e in events if e.name() == _MEMORY and e.device_type() != DeviceType.CPU]
        operators = [e for e in host if not _LAUNCH.fullmatch(e.name()) and e.name() != _MEMORY]
        by_id = {e.correlation_id(): span for e in operators for span in _spans(e)}
        found = [*by_id.values(), *(span for event in memory for span in _spans(event))]
        found += launched(_works(events, host), by_id)
    spans: list[list[Span]] = [[] for _ in windows]
    position = 0
    for span in sorted(found, key=lambda s: s.start):
        while position < len(windows) and span.start >= windows[position][1]:
            position += 1
        if position < len(windows) and span.start >= windows[position][0]:
            spans[position].append(span)
    return spans


def _spans(event: Any) -> Iterator[Span]:
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
    elif name.startswith(BACKWARD):
        kind = Kind.BACKWARD
    elif name.startswith((RUN, *_AROUND)) or name in _OVERHEAD:
        return
    elif event.is_user_annotation() and not name.startswith(_OPTIMIZER):
        kind = Kind.RANGE
    yield Span(
        kind,
        shown,
        start,
        event.end_ns(),
        thread,
        origin if origin >= 0 else None,
        inputs=tensor_types(event.shapes(), event.dtypes()),
    )


def _works(events: Iterable[Any], host: Iterable[Any]) -> Iterator[Work]:
    """Yields kernels and copies of the accelerator, with the operator and the call of each."""
    launches = {
        e.correlation_id(): Launch(e.name(), e.start_ns(), e.end_ns(), e.start_thread_id())
        for e in host
        if _LAUNCH.fullmatch(e.name())
    }
    for event in events:
        name = event.name()
        if event.device_type() == DeviceType.CPU or name == _MEMORY or _WAITING.search(name):
            continue
        if event.is_user_annotation():  # a range of the host, over the kernels inside it
            continue
        yield Work(
            name,
            event.start_ns(),
            event.end_ns(),
            event.device_resource_id(),
            event.linked_correlation_id(),
            launches.get(event.correlation_id()),
        )
