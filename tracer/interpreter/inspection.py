"""One inference looked at node by node, and held against another runtime's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracer.graph.model import Node
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.recording import NodeRecord, Recorder, Statistics, statistics
from tracer.interpreter.values import Value
from tracer.support.tolerance import Difference, Tolerance, compare, worst
from tracer.support.types import type_text


@dataclass(frozen=True, slots=True)
class Row:
    """A node, what it did, and how far its outputs are from the other runtime's, if known."""

    record: NodeRecord
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the model."""

    name: str
    type: str
    statistics: Statistics | None
    value: Value


@dataclass(frozen=True, slots=True)
class Inspection:
    """Rows in the order the nodes ran, and the outputs of the model."""

    rows: tuple[Row, ...]
    outputs: tuple[Output, ...]

    @property
    def first_fault(self) -> Row | None:
        """The first node whose outputs are out of tolerance."""
        faults = (row for row in self.rows if row.difference and row.difference.fault)
        return next(faults, None)


def inspect(
    interpreter: Interpreter,
    feeds: Mapping[str, Value],
    others: Mapping[str, Value] | None = None,
    tolerance: Tolerance | None = None,
) -> Inspection:
    """Look at every node of one run, after another one that loads and allocates.

    `others` are tensors of the main graph by name, from another runtime on the same feeds.
    Raises what `Interpreter.run` raises.
    """
    interpreter.with_observers().run(None, feeds)
    comparer = _Comparer(others or {}, tolerance or Tolerance())
    recorder = Recorder()
    # A recorder stops its clock before others look, as the last to begin and the first to end.
    made = interpreter.with_observers(recorder, comparer).run(None, feeds)
    rows = tuple(Row(record, comparer.found.get(key)) for key, record in recorder.records.items())
    names = [value.name for value in interpreter.get_outputs()]
    outputs = tuple(
        Output(name, type_text(value), statistics(value), value)
        for name, value in zip(names, made, strict=True)
    )
    return Inspection(rows, outputs)


class _Comparer:
    """Compares the outputs of each node of the main graph as soon as they are there."""

    def __init__(self, others: Mapping[str, Any], tolerance: Tolerance) -> None:
        self._others = others
        self._tolerance = tolerance
        self.found: dict[str, Difference] = {}

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Nothing is known yet."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keep the worst difference among the outputs that the other runtime has too."""
        if node.scope.path:
            return
        named = zip(node.outputs, outputs, strict=False)
        differences = [
            compare(value, self._others[name], self._tolerance)
            for name, value in named
            if name in self._others
        ]
        if differences:
            self.found[node.key] = worst(differences)
