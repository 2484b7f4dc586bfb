"""Reads the Chrome trace that torch.profiler exported in any program, as eager rows.

A step of the profiler is a run. Modules are known where it recorded them (`with_stack=True`). In a
trace of an accelerator, times are those of its work, which counts for what launched it.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tracer.errors import InputError, refusing
from tracer.executors.calls import Calls, DeviceUse, Kind, Launch, Span, Work, launched
from tracer.executors.eager import Measured, Overhead, profile_of
from tracer.executors.foreign import origin_notes
from tracer.executors.registry import Profiled
from tracer.graph.tensor_type import TensorType
from tracer.support.files import read_regular

_STEP = "ProfilerStep#"
BACKWARD = "autograd::engine::evaluate_function: "
"""Begins the names of operators of the backward pass."""
_MODULE = "nn.Module: "
_RANGES = ("user_annotation",)
WORK, CALLS = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")
"""Categories of what an accelerator does, and of the calls that launch it, those of HIP too."""
_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long": "int64", "long int": "int64", "long long": "int64", "int": "int32", "short": "int16",
    "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
}  # fmt: skip
"""Element types by their C++ names in a profile."""


class _Args(msgspec.Struct, rename={"sequence": "Sequence number", "dims": "Input Dims",
                                    "types": "Input type", "external": "External id"}):  # fmt: skip
    sequence: int | None = None
    external: int = 0
    correlation: int = 0
    stream: int | str = 0
    dims: list[object] = []
    types: list[object] = []


class Event(msgspec.Struct):
    """An event of Kineto, torch's profiler; times are in µs."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float | str = 0.0
    dur: float | str = 0.0
    tid: int | str = 0
    raw_args: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="args")

    @property
    def args(self) -> _Args:
        """The arguments, decoded."""
        return msgspec.json.decode(self.raw_args, type=_Args)

    @property
    def begin_ns(self) -> int:
        """When it begins."""
        return round(float(self.ts) * 1000)

    @property
    def length_ns(self) -> int:
        """How long it takes."""
        return round(float(self.dur) * 1000)


class File(msgspec.Struct):
    """The file that Kineto writes."""

    events: list[Event] = msgspec.field(default_factory=list, name="traceEvents")


def read(path: Path) -> Profiled:
    """Returns the operators of all steps, with the times as the profiler recorded them.

    Raises InputError for a file that is no such trace, or holds no operator.
    """
    hint = "Name a file that export_chrome_trace wrote."
    with refusing(lambda why: InputError(f"{path}: not a trace of torch.profiler ({why})", hint)):
        events = msgspec.json.decode(read_regular(path), type=File).events
        numbered = list(_spans(events))
        works = list(_works(events, dict(numbered)))
        spans = [*(span for _, span in numbered), *launched(works, dict(numbered))]
        spans.sort(key=lambda span: (span.start, -span.end))
        steps = [e for e in events if e.ph == "X" and e.name.startswith(_STEP)]
        host = [e for e in steps if e.cat == "user_annotation"] or steps
        windows = sorted((e.begin_ns, e.begin_ns + e.length_ns) for e in host)
    whole = [(spans[0].start, max(span.end for span in spans))] if spans else []
    calls, use, took = Calls("torch", on_device=bool(works)), DeviceUse(), []
    for begin, end in windows or whole:
        inside = [span for span in spans if begin <= span.start and span.end <= end]
        if any(span.kind in (Kind.FORWARD, Kind.BACKWARD) for span in inside):
            calls.add(inside)
            use.add(inside)
            took.append((end - begin) / 1000)
    if not took:
        raise InputError(
            f"{path}: holds no operator of torch",
            "Record the CPU: torch.profiler.profile(activities=[ProfilerActivity.CPU]). Results of "
            "tracer are read from .trace files.",
        )
    provider = "cuda" if works else "cpu"
    measured = Measured("torch", provider, (), took, took, Overhead(0.0, 0.0))
    profiled = profile_of(calls, measured)
    notes = origin_notes(path, "torch.profiler", "FILE.py:NAME")
    if len(took) == 1:
        notes.append("all is one run: torch marks runs where the profiler has a schedule")
    if not any(span.kind is Kind.MODULE for span in spans):
        notes.append("modules are not known: with_stack=True records them")
    if works:
        notes += use.notes(statistics.median(took))
    return replace(profiled, run=replace(profiled.run, notes=tuple(notes)))


def _spans(events: Sequence[Event]) -> Iterator[tuple[int, Span]]:
    """Yields what ran on the CPU, with its number; steps of the profiler are left out.

    What torch did not number has a negative number, which no work has.
    """
    for place, event in enumerate(events, 1):
        if event.ph != "X" or event.name.startswith(_STEP):
            continue
        kind, name = Kind.RANGE, event.name
        if event.cat == "cpu_op":
            kind = Kind.BACKWARD if name.startswith(BACKWARD) else Kind.FORWARD
        elif event.cat == "python_function" and name.startswith(_MODULE):
            kind, name = Kind.MODULE, name.removeprefix(_MODULE)
        elif event.cat not in _RANGES:
            continue
        args = event.args if event.cat == "cpu_op" else _Args()
        begin, inputs = event.begin_ns, tensor_types(args.dims, args.types)
        end, thread = begin + max(event.length_ns, 0), hash(event.tid)
        span = Span(kind, name, begin, end, thread, args.sequence, inputs=inputs)
        yield args.external or -place, span


def _works(events: Sequence[Event], operators: Mapping[int, Span]) -> Iterator[Work]:
    """Yields what the accelerator did, with its launch, and with its operator.

    Files of some versions of torch number operators otherwise: a launch outside of the operator
    that has its number is in the operator around it.
    """
    launches = {
        event.args.correlation: Launch(
            event.name, event.begin_ns, event.begin_ns + event.length_ns, hash(event.tid)
        )
        for event in events
        if event.ph == "X" and event.cat in CALLS
    }
    for event in events:
        if event.ph == "X" and event.cat in WORK:
            args = event.args
            begin, launch = event.begin_ns, launches.get(args.correlation)
            around = operators.get(args.external)
            is_inside = around and launch and around.start <= launch.start <= around.end
            number = args.external if is_inside else 0
            end = begin + event.length_ns
            yield Work(event.name, begin, end, hash(args.stream), number, launch)


def tensor_types(shapes: Sequence[Any], dtypes: Sequence[Any]) -> tuple[TensorType, ...]:
    """Returns the types of the tensors among the arguments, without lists and scalars."""
    return tuple(
        TensorType(_DTYPES[dtype], tuple(shape))
        for shape, dtype in zip(shapes, dtypes, strict=False)
        if dtype in _DTYPES and isinstance(shape, list) and all(isinstance(n, int) for n in shape)
    )
