"""Marks what torch dispatches in its profile, and reads the events of the profile as spans.

Kineto numbers operators apart from the calls of an accelerator's runtime. Work of the accelerator
has the number of its call as its own, and is linked to the innermost operator around the call, to 0
where there is none.

torch's own formulas (`torch.utils.flop_counter`) count the products, forward and backward. Bytes
are those of the tensors that an operator reads and writes, each once. A mark stands in the profile
where its operator does, so it is inside the row of the operator.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tracer.executors.calls import Calls, Kind, Launch, Span, Work, launched
from tracer.executors.foreign.torch_trace import BACKWARD, tensor_types
from tracer.executors.registry import OperatorWork

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
_MARK = "tracer:work:"
_MODE = "PythonDispatchMode"
"""The span that torch puts around what a mode dispatches."""
_OVERWRITING = ("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_")
"""Operators that write a tensor without reading it."""
_CHOOSING = ("embedding", "gather", "index", "index_select")
"""Operators that read of their first tensor what they write."""
_CREATING = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
"""Operators that write nothing."""


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
    kind, shown = Kind.FORWARD, name
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
    origin = event.sequence_nr() if event.sequence_nr() >= 0 else None
    inputs = tensor_types(event.shapes(), event.dtypes())
    yield Span(kind, shown, start, event.end_ns(), thread, origin, inputs=inputs)


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
        stream, operator = event.device_resource_id(), event.linked_correlation_id()
        launch = launches.get(event.correlation_id())
        yield Work(name, event.start_ns(), event.end_ns(), stream, operator, launch)


class Marking(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Marks the work of each operator that torch dispatches, below its modules and autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Runs an operator and marks it; one that consists of others is marked by these."""
        arguments = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **arguments)
            if parts is not NotImplemented:
                return parts
        results = func(*args, **arguments)
        if not func.is_view:
            flops = 0 if formula is None else formula(*args, **arguments, out_val=results)
            read, written = _bytes_moved(func, args, arguments, results)
            floats = (t.dtype for t in tensors_in([args, arguments]) if t.dtype.is_floating_point)
            kind = str(next(floats, torch.float32)).removeprefix("torch.")
            if flops or read or written:
                work = (_name(func), kind, flops, read, written)
                with _RecordFunctionFast(_MARK + ":".join(map(str, work))):
                    pass
        return results


def _bytes_moved(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any
) -> tuple[int, int]:
    """Returns the bytes that an operator reads and writes."""
    name = _name(func)
    if name in _CREATING:
        return 0, 0
    named = list(zip(func._schema.arguments, args, strict=False))
    named += [(each, kwargs[each.name]) for each in func._schema.arguments if each.name in kwargs]
    changed = [
        value for each, value in named if each.alias_info is not None and each.alias_info.is_write
    ]
    written = _bytes([results, changed])
    overwrites = name in _OVERWRITING or "out" in kwargs
    inputs = [value for _, value in named if not (overwrites and any(value is c for c in changed))]
    read = _bytes(inputs)
    return (min(read, 2 * written) if name in _CHOOSING else read), written


def _bytes(values: Any) -> int:
    """Returns the bytes of all tensors in `values`, one that occurs twice once."""
    sizes = {
        (t.data_ptr(), t.nbytes): min(t.nbytes, t.untyped_storage().nbytes())
        for t in tensors_in(values)
        if t.layout == torch.strided
    }
    return sum(sizes.values())


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Returns the tensors in what modules and operators take and return."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _name(func: Any) -> str:
    return str(func._schema.name).rpartition("::")[2]


def work_by_row(spans: Iterable[Span]) -> dict[str, OperatorWork]:
    """Returns the work of each row that has some, from the spans of one run with marks."""
    calls = Calls("torch")
    calls.observe(span for span in spans if span.name != _MODE)
    rows: dict[str, OperatorWork] = {}
    for site in calls.sites:
        if site.name.startswith(_MARK):
            name, kind, *counts = site.name.removeprefix(_MARK).split(":")
            work = OperatorWork(name, kind, *map(int, counts))
            rows[site.node] = rows[site.node] + work if site.node in rows else work
    return rows
