"""Reads onnxruntime's profile as a stream, and sums the self times of kernels by run.

A profile is a JSON list of up to a gigabyte, an event a line.

The meaning of fields, and which are absent, differs by version. The order of the file does not
matter here. See `onnxruntime/core/common/profiler.cc` and `sequential_executor.cc`.

Builds of onnxruntime with CUDA or ROCm profiling write an event of the category `Kernel` for each
kernel of the device, with its time there. Two shapes are published:

- Up to onnxruntime 1.13 the event follows the event of its node in the file, and names the node's
  operator in `op_name` (onnxruntime #8406, #9567).
- Later ones follow it as well, matched by CUPTI's correlation ids, and name the event that launched
  them in `parent_name` (include/onnxruntime/core/common/gpu_profiler_common.h). Where no event has
  the start time that the id stands for, both names are missing.

The times of nodes themselves are those on the host: of launches, unless CUDA_LAUNCH_BLOCKING=1 made
each launch wait for its kernel.

Execute and model_run events carry no identity, and a file may be ordered by start or by end. That
an If or a Loop contains the nodes of its body follows only from `ts` and `dur` on one thread.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracer.errors import ModelError, TracerError, refusing
from tracer.graph.tensor_type import CallTypes, TensorType, Types, types_of_calls
from tracer.records import environment
from tracer.support.temporary import check_room
from tracer.support.types import BoolArray, FloatArray, IntArray

MODEL_RUN, EXECUTE = 0, 1
"""Labels of the two kinds of session events that enclose the nodes."""
ENCLOSING = {"model_run": MODEL_RUN, "SequentialExecutor::Execute": EXECUTE}
IGNORED, _UNKNOWN, _DEVICE = -1, -2, -3
_BLOCK_BYTES = 1 << 20
_DIGITS = 19
"""Decimal digits of which some number is no int64."""
_SUFFIX = "_kernel_time"
_DEVICE_CATEGORY = "Kernel"
_COUNT = re.compile(r"_\d+$")
_BRACES = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}]', re.DOTALL)
"""Braces, and texts, whose braces do not count; the last text of a file may lack its end."""
_DTYPES = {
    "float": "float32", "double": "float64", "Int4x2": "int4", "UInt4x2": "uint4",
    "Int2x4": "int2", "UInt2x4": "uint2", "Float4E2M1x2": "float4_e2m1fn",
    "Float8E4M3FN": "float8_e4m3fn", "Float8E4M3FNUZ": "float8_e4m3fnuz",
    "Float8E5M2": "float8_e5m2", "Float8E5M2FNUZ": "float8_e5m2fnuz",
    "Float8E8M0": "float8_e8m0fnu",
}  # fmt: skip
"""Names of onnxruntime that are not those of numpy and ml_dtypes."""


class _Event(msgspec.Struct):
    cat: str
    name: str
    ts: int
    dur: int
    tid: int
    args: msgspec.Raw = msgspec.Raw(b"{}")


_DECODER = msgspec.json.Decoder(list[_Event])


class _Args(msgspec.Struct):
    """Arguments of an event; every field is absent in some version."""

    op_name: str = ""
    provider: str = ""
    node_index: str = ""
    graph_index: str = ""  # what older versions call node_index
    input_type_shape: list[dict[str, list[int]]] = []
    output_type_shape: list[dict[str, list[int]]] = []
    mem_bytes_in_use: str = ""
    mem_in_use_peak: str = ""
    parent_name: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """One kernel as the profile describes its first call, `first_us` after the start.

    Memory is meaningful only in the first run: later runs reuse the arena of the first.
    """

    name: str
    first_us: int
    op_type: str
    provider: str
    input_types: tuple[TensorType, ...] = ()
    output_types: tuple[TensorType, ...] = ()
    arena_bytes: int | None = None
    arena_peak_bytes: int | None = None
    node_index: str = ""
    varying: tuple[CallTypes, ...] = ()


@dataclass(slots=True)
class Labels:
    """The labels of kernels, numbered in the order of their first event; 0 and 1 enclose runs.

    Event names in `repeated` belong to several kernels, distinguished by node index, which takes
    time to read; `by_index` holds their numbers, and those of compiled subgraphs. `numbers` holds
    the numbers of all other event names. With `every_shape`, the shapes of all calls are read:
    `finish` then makes a dimension that differs between calls None. With `by_types`, such calls
    have labels apart.
    """

    every_shape: bool = False
    by_types: bool = False
    repeated: frozenset[str] = frozenset()
    kernels: list[Label] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=lambda: dict(ENCLOSING))
    by_index: dict[tuple[str, Hashable], int] = field(default_factory=dict)
    _calls: dict[int, Counter[tuple[Types, Types]]] = field(default_factory=dict)

    def number(self, event: _Event) -> int:
        """Returns the label number of an event; adds it to `numbers` if the name decides it."""
        if event.name in self.numbers:
            return self.numbers[event.name]
        if event.cat == _DEVICE_CATEGORY:
            self.numbers[event.name] = _DEVICE
            return _DEVICE
        if event.cat != "Node" or not event.name.endswith(_SUFFIX):
            # Session start, or the fence events of older releases, whose duration is always 0.
            self.numbers[event.name] = IGNORED
            return IGNORED
        args = msgspec.json.decode(event.args, type=_Args)
        compiled = environment.is_compiled(args.provider, args.op_name, event.name)
        if not (compiled or event.name in self.repeated or self.every_shape or self.by_types):
            self.numbers[event.name] = number = self._add(event, args)
            return number
        original = event.name
        if compiled:
            # OpenVINO counts its subgraphs over all sessions of a process: `…_subgraph_1_0` is
            # `…_subgraph_2_0` in the next. The number in the session tells them apart.
            stem = _COUNT.sub("", args.op_name)
            event.name = event.name.replace(f"_{args.op_name}_", f"_{stem}_")
            args.op_name = stem
        # what tells a kernel from others of its name: they may be in different graphs
        index: Hashable = "" if compiled else args.node_index or args.graph_index
        types = _types(args.input_type_shape), _types(args.output_type_shape)
        key = event.name, (args.op_name, index, *types) if self.by_types else index
        if key not in self.by_index:
            self.by_index[key] = self._add(event, args)
        number = self.by_index[key]
        if compiled:
            self.by_index[original, ""] = number  # which kernels of a device name
        if not self.by_types:
            self._calls.setdefault(number - EXECUTE - 1, Counter())[types] += 1
        return number

    def finish(self) -> None:
        """Sets the types of kernels of which all calls were looked at."""
        for index, calls in self._calls.items():
            (inputs, outputs), varying = types_of_calls(calls)
            self.kernels[index] = replace(
                self.kernels[index], input_types=inputs, output_types=outputs, varying=varying
            )

    def _add(self, event: _Event, args: _Args) -> int:
        self.kernels.append(
            Label(
                name=event.name.removesuffix(_SUFFIX),
                first_us=event.ts,
                op_type=args.op_name,
                provider=args.provider,
                input_types=_types(args.input_type_shape),
                output_types=_types(args.output_type_shape),
                arena_bytes=_bytes(args.mem_bytes_in_use),
                arena_peak_bytes=_bytes(args.mem_in_use_peak),
                node_index=args.node_index or args.graph_index,
            )
        )
        return EXECUTE + len(self.kernels)

    def launching(self, args: _Args) -> frozenset[int]:
        """Returns the labels of the events that may have launched a kernel of the device.

        They have the name of its parent or, in older files, its operator.
        """
        if args.parent_name:
            number = self.numbers.get(args.parent_name, IGNORED)
            if number >= MODEL_RUN:
                return frozenset({number})
            return frozenset(
                n for (name, _), n in self.by_index.items() if name == args.parent_name
            )
        ops = enumerate((kernel.op_type for kernel in self.kernels), EXECUTE + 1)
        return frozenset(number for number, op_type in ops if op_type == args.op_name)


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of one profile: times in µs since its start, `label` as numbered by `Labels`.

    `device_us` is the time on the device of what each event launched; None for a profile without
    events of the device. `stray_us` is the time there that no event launched. `is_cut` says that
    the file ends before its list of events does.
    """

    ts: IntArray
    dur: IntArray
    tid: IntArray
    label: IntArray
    device_us: FloatArray | None = None
    stray_us: float = 0.0
    is_cut: bool = False

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, rows: BoolArray) -> "Events":
        """Returns the events where `rows` is true."""
        device = None if self.device_us is None else self.device_us[rows]
        return replace(
            self, ts=self.ts[rows], dur=self.dur[rows], tid=self.tid[rows], label=self.label[rows],
            device_us=device,
        )  # fmt: skip


def read(path: Path, labels: Labels, may_be_cut: bool = False) -> Events:
    """Returns all node, execute and run events of a profile. Raises ModelError for any other.

    A file that `may_be_cut` off is read up to its last whole event.
    """
    columns: list[IntArray] = []
    device: list[DeviceEvent] = []
    is_cut = False

    def refusal(why: str) -> TracerError:
        check_room()
        return ModelError(
            f"onnxruntime wrote a profile that is not valid JSON ({why})",
            "A newer onnxruntime may help.",
        )

    with refusing(refusal):
        for block, is_last in _blocks(path):
            events, is_cut = _decoded(block, may_be_cut and is_last)
            rows, launched = _labelled(events, labels, sum(map(len, columns)))
            columns.append(np.array(rows, np.int64).reshape(-1, 4))
            device += launched
    labels.finish()
    table = np.concatenate(columns) if columns else np.empty((0, 4), np.int64)
    (host,) = np.nonzero(table[:, 3] >= MODEL_RUN)
    table = table[host]
    found = Events(table[:, 0], table[:, 1], table[:, 2], table[:, 3], is_cut=is_cut)
    if not device:
        return found
    device_us, stray_us = device_us_by_event(device, table[:, 3], host)
    return replace(found, device_us=device_us, stray_us=stray_us)


def read_ended(session: Any, labels: Labels) -> "tuple[Events, RunTable]":
    """Ends the profile of a session; reads its file, which is removed, and tabulates its runs."""
    path = Path(session.end_profiling())
    events = read(path, labels)
    path.unlink()
    return events, tabulate(events, len(labels.kernels))


def _decoded(lines: bytes, may_be_cut: bool) -> tuple[list[_Event], bool]:
    """Returns the events of some lines of the list, and whether they were cut off."""
    body = lines.strip()
    is_cut = may_be_cut and not body.endswith(b"]")
    body = body.removeprefix(b"[").removesuffix(b"]").strip().removesuffix(b",")
    try:
        return _DECODER.decode(b"[" + body + b"]"), is_cut
    except msgspec.DecodeError:
        depth = end = 0  # of the last whole event
        for match in _BRACES.finditer(body) if may_be_cut else ():
            depth += {b"{": 1, b"}": -1}.get(match[0], 0)
            if match[0] == b"}" and not depth:
                end = match.end()
        if not end:
            raise
        return _DECODER.decode(b"[" + body[:end] + b"]"), True


def _labelled(
    events: Sequence[_Event], labels: Labels, first: int
) -> "tuple[list[tuple[int, int, int, int]], list[DeviceEvent]]":
    """Returns the start, duration, thread and label of events, and those of the device.

    The first of `events` is the `first` of all. What the start of the session launched is left
    out: it is no part of a run.
    """
    numbers = [labels.numbers.get(event.name, _UNKNOWN) for event in events]
    if _UNKNOWN in numbers:
        numbers = [
            labels.number(event) if number == _UNKNOWN else number
            for event, number in zip(events, numbers, strict=True)
        ]
    rows = [(e.ts, e.dur, e.tid, n) for e, n in zip(events, numbers, strict=True)]
    launched: list[DeviceEvent] = []
    for position, event in enumerate(events, first) if _DEVICE in numbers else ():
        if numbers[position - first] == _DEVICE:
            args = msgspec.json.decode(event.args, type=_Args)
            if labels.numbers.get(args.parent_name) != IGNORED:
                launched.append(DeviceEvent(position, event.dur, labels.launching(args)))
    return rows, launched


def _blocks(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Yields whole lines of about a megabyte, and whether they are the last."""
    with path.open("rb") as stream:
        held = rest = b""
        while data := stream.read(_BLOCK_BYTES):
            whole, newline, tail = data.rpartition(b"\n")
            if not newline:  # a line longer than a block
                rest += data
                continue
            if held:
                yield held, False
            held, rest = rest + whole + newline, tail
        yield held + rest, True


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A kernel of the device: its position among the events of a file, and its time in µs.

    `parents` are the labels that the event which launched it can have; none if it is not known.
    """

    position: int
    dur: int
    parents: frozenset[int]


def device_us_by_event(
    events: Sequence[DeviceEvent], label: IntArray, position: IntArray
) -> tuple[FloatArray, float]:
    """Returns µs on the device for each event of the host, and those that no event launched.

    `label` and `position` are of the events of the host, in the order of the file. The parent is
    the last of them before a kernel that has one of its labels.
    """
    times = np.zeros(len(label))
    rows: dict[frozenset[int], IntArray] = {}
    stray = 0.0
    for event in events:
        if event.parents not in rows:
            rows[event.parents] = np.flatnonzero(np.isin(label, [*event.parents]))
        candidates = rows[event.parents]
        place = int(np.searchsorted(position[candidates], event.position)) - 1
        if place < 0:
            stray += event.dur
        else:
            times[candidates[place]] += event.dur
    return times, stray


def _types(shapes: list[dict[str, list[int]]]) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(_DTYPES.get(dtype, dtype), tuple(shape))
        for entry in shapes
        for dtype, shape in entry.items()
    )


def _bytes(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < _DIGITS else None


@dataclass(frozen=True, slots=True)
class RunTable:
    """Duration of each run, and self time (µs) and calls of each kernel, (runs, labels).

    `bodies` are the runs of bodies inside each kernel, as of an If or a Loop, in the same shape.
    `device_us` is the time of each kernel on the device, beside its self time; None for a profile
    without events of the device. `apart_us` is the time there, in all runs, of what no node
    launched.
    """

    dur: IntArray
    self_us: FloatArray
    calls: IntArray
    bodies: IntArray
    device_us: FloatArray | None = None
    apart_us: float = 0.0

    def take(self, rows: IntArray) -> "RunTable":
        """Returns the table of these runs."""
        device = None if self.device_us is None else self.device_us[rows]
        return replace(
            self, dur=self.dur[rows], self_us=self.self_us[rows], calls=self.calls[rows],
            bodies=self.bodies[rows], device_us=device,
        )  # fmt: skip


def tabulate(events: Events, kernels: int) -> RunTable:
    """Sums the events of each model_run; `kernels` is the number of labels."""
    runs = run_events(events)
    node = np.flatnonzero(events.label > EXECUTE)
    run = runs_around(events, runs, node)
    inside = run >= 0
    node, run = node[inside], run[inside]
    cell = run * kernels + events.label[node] - EXECUTE - 1
    shape = (len(runs), kernels)

    def by_cell(values: IntArray | FloatArray) -> FloatArray:
        sums = np.bincount(cell, values, len(runs) * kernels)
        return sums.astype(np.float64).reshape(shape)

    own, bodies = _self_times(events)
    calls = np.bincount(cell, minlength=len(runs) * kernels).reshape(shape)
    inside_calls = by_cell(bodies[node]).astype(np.int64)
    table = RunTable(events.dur[runs], by_cell(own[node]), calls, inside_calls)
    if events.device_us is None:
        return table
    device = by_cell(events.device_us[node])
    apart = events.stray_us + events.device_us.sum() - device.sum()
    return replace(table, device_us=device, apart_us=float(apart))


def run_events(events: Events) -> IntArray:
    """Returns the positions of the events of runs, in the order in which the runs began."""
    runs = np.flatnonzero(events.label == MODEL_RUN)
    return runs[np.argsort(events.ts[runs], kind="stable")]


def runs_around(events: Events, runs: IntArray, nodes: IntArray) -> IntArray:
    """Returns which of `runs` each of `nodes` is in; -1 for one after a run that was broken off.

    Runs of several threads may overlap, so a node is in a run of its own thread. Threads that make
    no runs compute nodes for others.
    """
    callers = np.unique(events.tid[runs])
    of_thread = [(events.tid[runs] == tid, events.tid[nodes] == tid) for tid in callers]
    helping = (np.full(len(runs), True), ~np.isin(events.tid[nodes], callers))
    found = np.full(len(nodes), -1)
    for its_runs, its_nodes in (*of_thread, helping):
        own, place = np.flatnonzero(its_runs), np.flatnonzero(its_nodes)
        at = np.searchsorted(events.ts[runs[own]], events.ts[nodes[place]], side="right") - 1
        place, at = place[at >= 0], own[at[at >= 0]]
        ended = events.ts[nodes[place]] - events.ts[runs[at]] > events.dur[runs[at]]
        found[place] = np.where(ended, -1, at)
    return found


def _self_times(events: Events) -> tuple[IntArray, IntArray]:
    """Returns `dur` minus the Execute events directly inside, and the number of these events.

    The first is a node's time outside its body.
    The gaps between the nodes of a body belong to the runtime and the profiler, not to the parent.
    So the whole interval of a body is subtracted, not only the intervals of its nodes.
    """
    own, bodies = events.dur.copy(), np.zeros(len(events), np.int64)
    executes = int(np.count_nonzero(events.label == EXECUTE))
    if executes <= int(np.count_nonzero(events.label == MODEL_RUN)):
        return own, bodies  # one Execute a run: nothing is nested
    for parent, child in parents(events):
        if events.label[child] == EXECUTE and events.label[parent] > EXECUTE:
            own[parent] -= events.dur[child]
            bodies[parent] += 1
    # rounded to µs, a body may be 1 longer than its parent
    return np.maximum(own, 0), bodies


def parents(events: Events) -> list[tuple[int, int]]:
    """Returns (parent, child) for every event inside another event of its thread."""
    # Of two events that start together the longer is the parent; of two equal events, the one
    # written later: a parent ends after its children, and a stable sort by start keeps that order.
    order = np.lexsort((-np.arange(len(events)), -events.dur, events.ts, events.tid))
    end = events.ts + events.dur
    pairs: list[tuple[int, int]] = []
    stack: list[int] = []
    for event in order.tolist():
        while stack and not (
            events.tid[stack[-1]] == events.tid[event]
            and events.ts[event] < end[stack[-1]]
            and end[event] <= end[stack[-1]] + 1  # rounded to µs, a child may seem to end later
        ):
            stack.pop()
        if stack:
            pairs.append((stack[-1], event))
        stack.append(event)
    return pairs
