"""Turns the spans that a framework recorded over many runs into kernels and rows.

A run is a list of spans. Nested spans form a tree: modules around operators, and operators around
the operators they call. The outermost operators are the rows of the node table. A range, which
the user's code marks, is a row for the time between the operators inside, which keep their own
rows. Every operator and range is a kernel with its own time, excluding its children. Its call site
is its row, the enclosing kernels, its name, and the count of that name there before. So runs that
take different paths agree on the call sites they share. What an accelerator did is a kernel inside
the operator that launched it; then operators have no time of their own but that of the host.
`DeviceUse` tells how busy the accelerator was.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tracer.graph.tensor_type import TensorType
from tracer.records.trace import BACKWARD, BACKWARD_PHASE, BUSY
from tracer.text import plural

RANGE = "range"
"""The `op_type` of a row of a range: the time between the operators inside it."""

_COPIES = ("Memcpy", "Memset")
"""Begin the names of copies of memory and of writing a constant to it."""
_GRAPH = "GraphLaunch"
"""Is in the names of calls that launch a captured graph: `cudaGraphLaunch`, `hipGraphLaunch`."""
_LONGEST = 96
"""Letters of a kernel's name; the rest are arguments of templates."""
_NO_THREAD = -1
"""Thread of rows that no call of the host launched."""
_OVERLAPPING = 1.01
"""Sum of the kernels' times ÷ the time in which one ran, from which on it is told."""


class Kind(Enum):
    """What a span covers.

    A phase is a part of the run outside of modules, such as the loss; a range is a part of the
    model's code that the user named.
    """

    MODULE = "module"
    PHASE = "phase"
    RANGE = "range"
    FORWARD = "forward"
    BACKWARD = "backward"
    MEMORY = "memory"


class Launch(NamedTuple):
    """A call of an accelerator's runtime, such as `cudaLaunchKernel`, on a thread of the host."""

    name: str
    start: int
    end: int
    thread: int


class Work(NamedTuple):
    """A kernel or a copy of memory that a `stream` of an accelerator did from `start` to `end`, ns.

    `operator` identifies the span that launched it, 0 where no operator did; `launch` is the call
    that did, where it is known. All kernels of a captured graph have the same launch.
    """

    name: str
    start: int
    end: int
    stream: int
    operator: int = 0
    launch: Launch | None = None


class Span(NamedTuple):
    """An interval from `start` to `end` (ns) on a thread.

    `name` is a module path, a phase, a range, or the framework's name of an operator. A backward
    span has the `origin` of its forward span; without one it belongs to the row before it. `module`
    is set where the framework knows the module; by default the enclosing span decides. A span of
    `work` stands where an accelerator's work was launched, and has its time. A memory span
    allocates `nbytes`, or frees them where negative.
    """

    kind: Kind
    name: str
    start: int
    end: int
    thread: int = 0
    origin: int | None = None
    module: str | None = None
    work: Work | None = None
    inputs: tuple[TensorType, ...] = ()
    nbytes: int = 0


@dataclass(slots=True)
class OperatorRow:
    """A row: an operator called by a module, the whole backward pass of that operator, or a range.

    `module` is None outside of the model's modules. `peak_bytes` is the most memory held beyond
    the memory at its start, where observed.
    """

    node: str
    module: str | None
    op_type: str
    domain: str
    inputs: tuple[TensorType, ...] = ()
    peak_bytes: int | None = None


class CallSite(NamedTuple):
    """A kernel: its row, its name, its path, and the path of the enclosing operator."""

    node: str
    name: str
    path: str
    scope: str


@dataclass(slots=True)
class _Frame:
    """An open span, which decides the row of spans inside; `column` is set for an operator."""

    end: int
    label: str
    module: str | None
    node: str | None = None
    column: int | None = None
    held: int = 0


@dataclass
class Calls:
    """The kernels and rows of all runs so far, and the own time (µs) of each kernel in each run.

    `on_device` says that times are those of an accelerator's work.
    """

    domain: str
    on_device: bool = False
    sites: list[CallSite] = field(default_factory=list)
    operations: dict[str, OperatorRow] = field(default_factory=dict)
    _columns: dict[tuple[int | str, str, int], int] = field(default_factory=dict)
    _runs: list[tuple[Any, Any]] = field(default_factory=list)
    _host: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, spans: Iterable[Span]) -> None:
        """Adds a timed run."""
        device, host = _Walk(self).over(spans)
        times = {column: device.get(column, 0.0) for column in host} if self.on_device else host
        for column, host_ns in host.items():
            self._host[column] += host_ns
        own = np.fromiter(times.values(), np.float32, len(times)) / np.float32(1e3)
        self._runs.append((np.fromiter(times, np.int32, len(times)), own))

    def observe(self, spans: Iterable[Span]) -> None:
        """Adds a run that is not timed, whose spans hold types and memory."""
        _Walk(self).over(spans)

    def samples(self) -> npt.NDArray[Any]:
        """Returns own times, µs, (runs, kernels); 0 where a kernel did not run."""
        table = np.zeros((len(self._runs), len(self.sites)), np.float32)
        for row, (columns, own) in zip(table, self._runs, strict=True):
            row[columns] = own
        return table

    def calls(self) -> list[float]:
        """Returns the mean calls of each kernel in a run."""
        columns = np.concatenate([columns for columns, _ in self._runs])
        counts = np.bincount(columns, minlength=len(self.sites))
        return [float(mean) for mean in counts / len(self._runs)]

    def host_us(self, column: int) -> float | None:
        """Returns the mean own time of a kernel on the host, µs, if it has another on a device."""
        return self._host[column] / len(self._runs) / 1e3 if self.on_device else None

    def column(self, parent: int | None, node: str, name: str, nth: int) -> int:
        """Returns the column of a kernel, a new column at its first call."""
        key = (node if parent is None else parent, name, nth)
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = len(self.sites)
            scope = "" if parent is None else self.sites[parent].path
            path = f"{scope or node} > {_numbered(name, nth)}"
            self.sites.append(CallSite(node, name, path, scope))
        return column


class _Walk:
    """Goes through the spans of one run, from the first to the last."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._times: dict[int, float] = defaultdict(float)
        self._host: dict[int, float] = defaultdict(float)
        self._stacks: dict[int, list[_Frame]] = defaultdict(list)
        self._key_counts: Counter[str] = Counter()
        self._call_counts: Counter[tuple[int | str, str]] = Counter()
        self._origins: dict[int | None, str] = {}
        self._last_backward: str | None = None

    def over(self, spans: Iterable[Span]) -> tuple[Mapping[int, float], Mapping[int, float]]:
        """Returns own times, ns, by column, on an accelerator and on the host.

        Spans are sorted by start, the outer of two first.
        """
        for span in sorted(spans, key=lambda s: (s.start, -s.end)):
            stack = self._stacks[span.thread]
            while stack and stack[-1].end <= span.start:
                stack.pop()
            outer = stack[-1] if stack else _Frame(span.end, "", None)
            if span.kind is Kind.MEMORY:
                # an allocation is counted for the row of the outermost frame that has one
                holder = next((frame for frame in stack if frame.node is not None), None)
                if holder is not None and holder.node is not None:
                    holder.held += span.nbytes
                    row = self._calls.operations[holder.node]
                    row.peak_bytes = max(row.peak_bytes or 0, holder.held)
            elif span.kind in (Kind.MODULE, Kind.PHASE):
                module = span.name if span.kind is Kind.MODULE else None
                stack.append(_Frame(span.end, span.name, module, outer.node, outer.column))
            elif span.kind is Kind.RANGE and outer.node is None:
                # operators inside get rows, whose keys hold the name of the range
                label = f"{outer.label}/{span.name}" if outer.label else span.name
                node = self._unique(label)
                row = OperatorRow(node, outer.module, RANGE, self._calls.domain)
                self._calls.operations.setdefault(node, row)
                column = self._column(span, outer, node)
                stack.append(_Frame(span.end, label, outer.module, None, column))
            else:
                node = outer.node or self._row(span, outer)
                column = self._column(span, outer, node)
                is_backward = span.kind is not Kind.FORWARD or node.endswith(BACKWARD)
                if span.origin is not None and not is_backward:
                    # nested spans share an origin; the last one is the innermost operator
                    self._origins[span.origin] = node
                stack.append(_Frame(span.end, outer.label, outer.module, node, column))
        return self._times, self._host

    def _column(self, span: Span, outer: _Frame, node: str) -> int:
        """Returns the column of a kernel, and adds its own time."""
        parent: int | str = node if outer.column is None else outer.column
        nth = self._call_counts[parent, span.name]
        self._call_counts[parent, span.name] += 1
        column = self._calls.column(outer.column, node, span.name, nth)
        if span.work is not None:
            self._times[column] += span.work.end - span.work.start
        self._host[column] += span.end - span.start
        if outer.column is not None:
            self._host[outer.column] -= span.end - span.start
        return column

    def _row(self, span: Span, outer: _Frame) -> str:
        """Returns the node key of an outermost operator, which becomes a row."""
        if span.kind is Kind.BACKWARD and span.origin in self._origins:
            self._last_backward = self._origins[span.origin]
        if self._last_backward and (span.kind is Kind.BACKWARD or outer.label == BACKWARD_PHASE):
            forward = self._calls.operations[self._last_backward]  # sums of gradients included
            node = self._last_backward + BACKWARD
            row = OperatorRow(node, forward.module, forward.op_type + BACKWARD, forward.domain)
            self._calls.operations.setdefault(node, row)
            return node
        module = outer.module if span.module is None else span.module
        label = outer.label if span.module is None else span.module
        domain, colons, op_type = span.name.rpartition("::")
        op_type = op_type.rpartition("#")[2]  # torch writes Optimizer.step#SGD.step
        node = self._unique(f"{label}/{op_type}" if label else op_type)
        row = OperatorRow(node, module, op_type, domain if colons else self._calls.domain)
        row = self._calls.operations.setdefault(node, row)
        row.inputs = span.inputs or row.inputs
        return node

    def _unique(self, key: str) -> str:
        self._key_counts[key] += 1
        return _numbered(key, self._key_counts[key] - 1)


def _numbered(name: str, nth: int) -> str:
    return f"{name}#{nth + 1}" if nth else name


def described(array: Any) -> str:
    """Returns `float32[1,3,32,32]` for an array with shape and dtype of any framework."""
    return f"{str(array.dtype).removeprefix('torch.')}[{','.join(map(str, array.shape))}]"


def launched(works: Iterable[Work], operators: Mapping[int, Span]) -> Iterator[Span]:
    """Yields each work as a span at the start of the operator that launched it.

    What no operator launched, such as a captured graph, gets a row of its own: the call that
    launched it, on the module that is running then.
    """
    calls = set()
    for work in works:
        operator, call = operators.get(work.operator), work.launch
        name = brief_name(work.name)
        if operator is not None and operator.kind in (Kind.FORWARD, Kind.BACKWARD):
            at, thread = operator.start, operator.thread
        elif call is None:
            at, thread = work.start, _NO_THREAD
        else:
            at, thread = call.start, call.thread
            if call not in calls:
                calls.add(call)
                shown = call.name if _GRAPH in call.name else name.partition("<")[0]
                yield Span(Kind.FORWARD, shown, at, max(call.end, at + 1), thread)
        yield Span(Kind.FORWARD, name, at, at, thread, work=work)


def brief_name(name: str) -> str:
    """Returns the name of a kernel without its type and what comes late in its arguments."""
    name = name.removeprefix("void ")
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


@dataclass
class DeviceUse:
    """The work of all recorded runs on an accelerator; times in ns.

    `busy` is the time in which any stream worked, `total` the sum over all work. Between them lie
    `gaps`; the accelerator was `waiting` for the host in a gap that ended with work launched in it.
    """

    runs: int = 0
    busy: int = 0
    total: int = 0
    gaps: int = 0
    gap: int = 0
    waiting: int = 0
    kernels: int = 0
    streams: Counter[int] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    copying: Counter[str] = field(default_factory=Counter)
    graphs: int = 0
    of_graphs: int = 0

    def add(self, spans: Iterable[Span]) -> None:
        """Adds a run."""
        works = sorted((span.work for span in spans if span.work), key=lambda work: work.start)
        self.runs += 1
        self.graphs += len({w.launch for w in works if w.launch and _GRAPH in w.launch.name})
        end = works[0].start if works else 0
        for work in works:
            time = work.end - work.start
            self.total += time
            self.streams[work.stream] += time
            if work.name.startswith(_COPIES):
                self.copies[work.name] += 1
                self.copying[work.name] += time
            else:
                self.kernels += 1
                self.of_graphs += work.launch is not None and _GRAPH in work.launch.name
            self.busy += max(work.end - max(work.start, end), 0)
            if work.start > end:
                self.gaps += 1
                self.gap += work.start - end
                if work.launch is not None and work.launch.start > end:
                    self.waiting += work.start - end
            end = max(end, work.end)

    def notes(self, wall_us: float) -> Iterator[str]:
        """Yields how busy the accelerator was in a run, which takes `wall_us` undisturbed."""
        if not self.total:
            yield (
                f"{BUSY}0 of {wall_us:,.1f} µs: torch recorded no work of it. The model runs on "
                "the host alone, or another profiler holds CUPTI"
            )
            return
        busy, total, gap, waiting = (
            each / self.runs / 1e3 for each in (self.busy, self.total, self.gap, self.waiting)
        )
        idle = max(wall_us - busy, 0.0)
        yield (
            f"{BUSY}{busy:,.1f} of {wall_us:,.1f} µs, and idle {idle / wall_us:.0%}: "
            f"{self._count(self.kernels)} kernels a run on {plural(len(self.streams), 'stream')}"
        )
        yield (
            f"{self._count(self.gaps)} gaps between kernels took {gap:,.1f} µs of a recorded run; "
            f"in {waiting:,.1f} µs of them the card waited for a launch, which recording slows"
        )
        yield (
            "time_us is the card's time for what an operator launched; the host's time for the "
            "operator is time_us_host, with the overhead of recording"
        )
        if len(self.streams) > 1:
            each = (f"{time / self.runs / 1e3:,.1f} µs" for time in self.streams.values())
            yield f"work of the streams, in the order of their first kernel: {', '.join(each)}"
        if total > busy * _OVERLAPPING:
            yield (
                f"kernels of several streams overlap: their times sum to {total:,.1f} µs, "
                f"{total - busy:,.1f} µs more than the card was busy"
            )
        if self.copies:
            each = (
                f"{self._count(count)} {name} {self.copying[name] / self.runs / 1e3:,.1f} µs"
                for name, count in self.copies.most_common()
            )
            yield f"copies and memory sets of a run: {', '.join(each)}"
        if self.graphs:
            yield (
                f"{self._count(self.of_graphs)} kernels of a run are in "
                f"{self._count(self.graphs)} launch{'es' * (self.graphs > self.runs)} of captured "
                "graphs, and count for it: a graph does not tell which operator it captured"
            )

    def _count(self, count: int) -> str:
        """Returns the mean count of a run, in whole numbers where runs agree."""
        return f"{count / self.runs:,.{int(count % self.runs != 0)}f}"
