"""What a framework was seen to do, over many runs: every call has a place that is its in each run.

A run is a list of spans. Spans that lie inside each other make a tree: modules around operators,
operators around the operators they are made of. The outermost operators are the rows of the node
table; every operator, inner ones too, is a kernel with its own time, that of its children not in
it. The place of a kernel is its row, the operators around it, its name, and how many of that name
were before it there; so runs that take another path still agree on what they have in common.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tracer.graph.tensor_type import TensorType

BACKWARD = " (backward)"
"""Ends the `node` and the `op_type` of the row of an operator's backward pass."""


BACKWARD_PHASE = "backward"
"""The phase in which an operator that is none's backward pass belongs to the row before it."""


class Kind(Enum):
    """What a span is of; a phase is a part of the run that no module makes, such as the loss."""

    MODULE = "module"
    PHASE = "phase"
    FORWARD = "forward"
    BACKWARD = "backward"
    MEMORY = "memory"


class Span(NamedTuple):
    """What happened from `start` to `end` (ns) on a thread.

    `name` is a dotted module path, a phase, or the framework's name of an operator. `origin` tells
    a backward span's forward one: they have the same; a backward span of none belongs to the row
    before it. `module` is set where the framework knows better than the spans around. `device_ns`
    is the time of an accelerator's own clock, which then is what counts. A memory span is `nbytes`
    allocated, or freed where they are negative.
    """

    kind: Kind
    name: str
    start: int
    end: int
    thread: int = 0
    origin: int | None = None
    module: str | None = None
    device_ns: int | None = None
    inputs: tuple[TensorType, ...] = ()
    nbytes: int = 0


@dataclass(slots=True)
class OperatorRow:
    """A row: an operator as a module called it, or all of its backward pass.

    `module` is None for what no module of the model did. `peak_bytes` is the most that it held
    beyond what there was when it began, where that was observed.
    """

    node: str
    module: str | None
    op_type: str
    domain: str
    inputs: tuple[TensorType, ...] = ()
    peak_bytes: int | None = None


class Place(NamedTuple):
    """A kernel: its row, its name, and the paths of itself and of the operator around it."""

    node: str
    name: str
    path: str
    scope: str


@dataclass(slots=True)
class _Frame:
    """An open span: what a span inside it belongs to. `column` is that of an operator."""

    end: int
    label: str
    module: str | None
    node: str | None = None
    column: int | None = None
    held: int = 0


@dataclass
class Calls:
    """Kernels and rows met so far, and the own time (µs) of each kernel in every run."""

    domain: str
    places: list[Place] = field(default_factory=list)
    operations: dict[str, OperatorRow] = field(default_factory=dict)
    _columns: dict[tuple[int | str, str, int], int] = field(default_factory=dict)
    _runs: list[tuple[Any, Any]] = field(default_factory=list)

    def add(self, spans: Iterable[Span]) -> None:
        """A timed run."""
        times = _Walk(self).over(spans)
        own = np.fromiter(times.values(), np.float32, len(times)) / np.float32(1e3)
        self._runs.append((np.fromiter(times, np.int32, len(times)), own))

    def observe(self, spans: Iterable[Span]) -> None:
        """A run that is not timed, for the types and the memory that its spans tell of."""
        _Walk(self).over(spans)

    def samples(self) -> npt.NDArray[Any]:
        """Own times, runs × kernels, µs; 0 where a kernel did not run."""
        table = np.zeros((len(self._runs), len(self.places)), np.float32)
        for row, (columns, own) in zip(table, self._runs, strict=True):
            row[columns] = own
        return table

    def calls(self) -> list[float]:
        """How often each kernel ran, per run."""
        columns = np.concatenate([columns for columns, _ in self._runs])
        seen = np.bincount(columns, minlength=len(self.places)) / len(self._runs)
        return [float(share) for share in seen]

    def column(self, parent: int | None, node: str, name: str, nth: int) -> int:
        """The column of a kernel, a new one where it was never met."""
        key = (node if parent is None else parent, name, nth)
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = len(self.places)
            scope = "" if parent is None else self.places[parent].path
            around = scope or node
            self.places.append(Place(node, name, f"{around} > {_numbered(name, nth)}", scope))
        return found


class _Walk:
    """One run, from its first span to its last."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._times: dict[int, float] = defaultdict(float)
        self._stacks: dict[int, list[_Frame]] = defaultdict(list)
        self._named: Counter[str] = Counter()
        self._met: Counter[tuple[int | str, str]] = Counter()
        self._origins: dict[int | None, str] = {}
        self._last_backward: str | None = None

    def over(self, spans: Iterable[Span]) -> Mapping[int, float]:
        """Own time, ns, by column. Spans come as they began, the outer of two first."""
        for span in sorted(spans, key=lambda s: (s.start, -s.end)):
            stack = self._stacks[span.thread]
            while stack and stack[-1].end <= span.start:
                stack.pop()
            outer = stack[-1] if stack else _Frame(span.end, "", None)
            if span.kind is Kind.MEMORY:
                self._hold(stack, span.nbytes)
            elif span.kind in (Kind.MODULE, Kind.PHASE):
                module = span.name if span.kind is Kind.MODULE else None
                stack.append(_Frame(span.end, span.name, module, outer.node, outer.column))
            else:
                stack.append(self._operator(span, outer))
        return self._times

    def _operator(self, span: Span, outer: _Frame) -> _Frame:
        node = outer.node or self._row(span, outer)
        around: int | str = node if outer.column is None else outer.column
        nth = self._met[around, span.name]
        self._met[around, span.name] += 1
        column = self._calls.column(outer.column, node, span.name, nth)
        if span.device_ns is not None:
            self._times[column] += span.device_ns
        else:
            self._times[column] += span.end - span.start
            if outer.column is not None:
                self._times[outer.column] -= span.end - span.start
        if span.kind is Kind.FORWARD and span.origin is not None and not node.endswith(BACKWARD):
            self._origins[span.origin] = node  # of several of one origin, the last made it
        return _Frame(span.end, outer.label, outer.module, node, column)

    def _row(self, span: Span, outer: _Frame) -> str:
        """The node key of an outermost operator, which becomes a row."""
        if span.kind is Kind.BACKWARD and span.origin in self._origins:
            self._last_backward = self._origins[span.origin]
        if self._last_backward and (span.kind is Kind.BACKWARD or outer.label == BACKWARD_PHASE):
            return self._backward_row(self._last_backward)  # gradients that are added up, too
        module = outer.module if span.module is None else span.module
        label = outer.label if span.module is None else span.module
        domain, colons, op_type = span.name.rpartition("::")
        op_type = op_type.rpartition("#")[2]  # torch writes Optimizer.step#SGD.step
        key = f"{label}/{op_type}" if label else op_type
        self._named[key] += 1
        node = _numbered(key, self._named[key] - 1)
        row = OperatorRow(node, module, op_type, domain if colons else self._calls.domain)
        row = self._calls.operations.setdefault(node, row)
        row.inputs = span.inputs or row.inputs
        return node

    def _backward_row(self, forward: str) -> str:
        row = self._calls.operations[forward]
        node = forward + BACKWARD
        back = OperatorRow(node, row.module, row.op_type + BACKWARD, row.domain)
        self._calls.operations.setdefault(node, back)
        return node

    def _hold(self, stack: Sequence[_Frame], nbytes: int) -> None:
        """Count an allocation for the row it happens in, which is that of its outermost frame."""
        frame = next((f for f in stack if f.node is not None), None)
        if frame is None or frame.node is None:
            return
        frame.held += nbytes
        row = self._calls.operations[frame.node]
        row.peak_bytes = max(row.peak_bytes or 0, frame.held)


def _numbered(name: str, nth: int) -> str:
    return f"{name}#{nth + 1}" if nth else name


def described(array: Any) -> str:
    """`float32[1,3,32,32]` of anything that has a shape and a dtype."""
    return f"{str(array.dtype).removeprefix('torch.')}[{','.join(map(str, array.shape))}]"
