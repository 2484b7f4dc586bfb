"""Goes through a graph once, and changes one node after the other while the data pass.

Two runs of all calibration batches stop at each node that is to be changed: one of the model as it
is, which tells what the node should return, and one of the model with all changes so far, which
tells what the node will read. The changed node then computes its output for the second run. So each
layer makes up for what those before it have lost, as in GPTQ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tracer.graph.model import Model, Node
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Observer
from tracer.interpreter.values import Value
from tracer.narrowing.fragment import Fragment
from tracer.narrowing.samples import Batch
from tracer.support.progress import Progress

SumT = TypeVar("SumT")
Alive = Mapping[str, Value]
"""The tensors of a batch that later nodes read, by name."""


def walk(
    model: Model,
    sums: Mapping[str, SumT],
    batches: Iterable[Feeds],
    change: Callable[[SumT, Node, Sequence[Batch]], Fragment | None],
    report: Progress,
) -> None:
    """Calls `change` for the nodes of `sums`, by key, in the order of the graph.

    It returns what takes the place of the node, or None for a node that stays.
    """
    seen = _Seen()
    interpreter = Interpreter(model, observers=[seen])
    wide: list[Alive] = [interpreter.begin(feeds) for feeds in batches]
    narrow, at, done = wide, 0, 0
    for index, node in enumerate(interpreter.steps):
        if node.key not in sums:
            continue
        seen.key = node.key
        stop = index + 1
        is_changed = narrow is not wide
        wide = [interpreter.advance(alive, at, stop) for alive in wide]
        wanted = seen.taken()
        narrow = [interpreter.advance(a, at, stop) for a in narrow] if is_changed else wide
        read = seen.taken() if is_changed else wanted
        at, done = stop, done + 1
        parts = [
            Batch(of_wide.inputs, of_narrow.inputs, of_wide.output)
            for of_wide, of_narrow in zip(wanted, read, strict=True)
        ]
        fragment = change(sums[node.key], node, parts)
        if fragment is not None:
            run = fragment.runner(model.proto, parts[0].read)
            narrow = [
                {**alive, node.outputs[0]: run(part.read)}
                for alive, part in zip(narrow, parts, strict=True)
            ]
        report(done, len(sums), "fitting nodes")


@dataclass(frozen=True, slots=True)
class _Call:
    """One computation of a node."""

    inputs: Sequence[Value]
    output: np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@dataclass
class _Seen(Observer):
    """Keeps what a node reads and returns, batch after batch."""

    key: str = ""
    calls: list[_Call] = field(default_factory=list)

    def taken(self) -> list[_Call]:
        """Returns the computations so far, and forgets them."""
        calls, self.calls = self.calls, []
        return calls

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Does nothing."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keeps a computation of the node."""
        if node.key == self.key:
            self.calls.append(_Call(tuple(inputs), np.asarray(outputs[0])))
