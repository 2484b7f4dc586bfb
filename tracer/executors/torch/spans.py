"""Records runs with torch's profiler, reads them as spans, and measures its overhead."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.profiler import profile

from tracer.executors.calls import Kind, Span
from tracer.executors.eager import Overhead
from tracer.executors.foreign.torch_trace import BACKWARD, tensor_types
from tracer.support.timing import times_us

_CHAIN_LENGTH = 200
_CHAIN_RUNS = 10
_CHAIN_TURNS = 5

RUN, MODULE, PHASE = "tracer:run", "tracer:module:", "tracer:phase:"
"""Marks of this package among the names in the profile."""

_MEMORY = "[memory]"
_LAUNCHES = ("cuda", "cu", "hip")
"""Prefixes of calls of an accelerator's runtime, which count for the calling operator."""

_AROUND = ("Torch-Compiled Region", "## Call CompiledFxGraph", "AOTDispatcher Runtime Wrapper")
"""Names of spans that torch.compile puts around the operators it calls."""

_OPTIMIZER = "Optimizer."
"""Begins the names of ranges that torch itself puts around the steps of optimizers."""


@dataclass(frozen=True, slots=True)
class Session:
    """How to record; `memory` adds input types and allocations, with more overhead."""

    device: str = "cpu"
    memory: bool = False

    @contextmanager
    def recording(self) -> Iterator[profile]:
        """Records the runs of the block; `runs` reads the records afterwards."""
        # By default Kineto announces every start and stop on stderr.
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
    """Returns a context that the profiler records as `name`; cheap without a profiler."""
    return _RecordFunctionFast(name)


def phase(name: str) -> Any:
    """Returns a context for a part of the run outside of modules."""
    return mark(PHASE + name)


@contextmanager
def marked(model: torch.nn.Module) -> Iterator[None]:
    """Marks the calls of every module by its path, '' for `model`; removes the hooks at the end."""
    running: list[Any] = []
    handles: list[Any] = []

    def enter(name: str) -> None:
        running.append(mark(name))
        running[-1].__enter__()

    def leave() -> None:
        running.pop().__exit__(None, None, None)

    try:
        for path, module in model.named_modules():
            name = MODULE + path
            before = module.register_forward_pre_hook(lambda *_, name=name: enter(name))
            after = module.register_forward_hook(lambda *_: leave())
            handles += [before, after]
        yield
    finally:
        for handle in handles:
            handle.remove()
        while running:  # a module raised
            leave()


def runs(recorded: profile, device: str = "cpu") -> list[list[Span]]:
    """Returns the spans of every run that `RUN` marks, without spans outside of runs."""
    result = recorded.kineto_results
    assert result is not None
    events = [event for event in result.events() if not event.is_hidden_event()]
    host = [event for event in events if event.device_type() == DeviceType.CPU]
    times = _device_times(events) if device != "cpu" else None
    windows = sorted((e.start_ns(), e.end_ns()) for e in host if e.name() == RUN)
    spans: list[list[Span]] = [[] for _ in windows]
    position = 0
    for event in sorted(host, key=lambda e: e.start_ns()):
        while position < len(windows) and event.start_ns() >= windows[position][1]:
            position += 1
        if position < len(windows) and event.start_ns() >= windows[position][0]:
            spans[position] += _spans(event, times)
    return spans


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
    elif name.startswith(BACKWARD):
        kind = Kind.BACKWARD
    elif name.startswith((RUN, *_AROUND)) or (times is not None and name.startswith(_LAUNCHES)):
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
        device_ns=None if times is None else times.get(event.correlation_id(), 0),
        inputs=tensor_types(event.shapes(), event.dtypes()),
    )


def _device_times(events: Sequence[Any]) -> Mapping[int, int]:
    """Returns ns on the accelerator by the correlation id of the launching operator."""
    times: dict[int, int] = defaultdict(int)
    for event in events:
        repeated = event.is_user_annotation()  # one of our marks, over the kernels inside it
        if event.device_type() != DeviceType.CPU and not repeated:
            times[event.linked_correlation_id()] += event.duration_ns()
    return times


@cache
def measure_overhead() -> Overhead:
    """Returns the overhead of recording a call; takes some milliseconds, once a process.

    An operator is stamped at the begin and the end of its record. So the overhead lies outside its
    own interval, in the interval of the enclosing operator. A chain of trivial operators takes
    longer by the overhead of each. The shortest of many chains, recorded or not, is free of
    disturbances.
    """
    x = torch.ones(8)
    plain, recorded = _shortest_chain(x), float("inf")
    for _ in range(_CHAIN_TURNS):
        with Session().recording():
            recorded = min(recorded, _shortest_chain(x))
        plain = min(plain, _shortest_chain(x))
    return Overhead(inside=0.0, outside=max(0.0, recorded - plain) / _CHAIN_LENGTH)


def _shortest_chain(x: torch.Tensor) -> float:
    """Returns the time, µs, of the shortest of a few chains."""

    def chain() -> None:
        for _ in range(_CHAIN_LENGTH):
            torch.neg(x)

    with torch.no_grad():
        return min(times_us(chain, _CHAIN_RUNS))
