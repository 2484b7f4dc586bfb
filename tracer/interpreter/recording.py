"""An observer that notes of every node how long it took and what came out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracer.graph.model import Node
from tracer.graph.tensor_type import TensorType
from tracer.interpreter.values import Value
from tracer.support.types import Array, dtype_text, type_text


@dataclass(frozen=True, slots=True)
class Statistics:
    """Extremes and mean of the finite values of a tensor; None where there are none."""

    minimum: float | None
    maximum: float | None
    mean: float | None
    nan: int
    inf: int


@dataclass(slots=True)
class NodeRecord:
    """What one node did in one inference; a node of a loop's body was called several times.

    `time_us` is its own time, without that of the nodes of its bodies. Types and statistics are
    those of the last call; statistics those of the first output, if it is a tensor of numbers.
    """

    node: Node
    calls: int = 0
    time_us: float = 0.0
    inputs: tuple[TensorType, ...] = ()
    outputs: tuple[TensorType, ...] = ()
    types: tuple[str, ...] = ()
    statistics: Statistics | None = None


@dataclass(slots=True)
class Recorder:
    """Records by node key, in the order the nodes ran first; `clock` tells nanoseconds."""

    describe: bool = True
    clock: Callable[[], int] = time.perf_counter_ns
    records: dict[str, NodeRecord] = field(default_factory=dict)
    _open: list[list[int]] = field(default_factory=list)

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Start the clock; what is inside takes its time from what is around it."""
        now = self.clock()
        self._open.append([now, 0, now])
        self._open[-1][0] = self.clock()

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Stop the clock, and look at the values while it stands."""
        ended = self.clock()
        began, inside, entered = self._open.pop()
        record = self.records.setdefault(node.key, NodeRecord(node))
        record.calls += 1
        record.time_us += (ended - began - inside) / 1e3
        if self.describe:
            record.inputs, record.outputs = _types(inputs), _types(outputs)
            record.types = tuple(type_text(value) for value in outputs)
            record.statistics = statistics(outputs[0]) if outputs else None
        if self._open:
            self._open[-1][1] += self.clock() - entered


def statistics(value: Value) -> Statistics | None:
    """Of a tensor of numbers; None for text, sequences and nothing."""
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        return None
    wide = value.astype(np.float64)
    finite = np.isfinite(wide)
    nan = int(np.isnan(wide).sum())
    held = wide if finite.all() else wide[finite]
    if not held.size:
        return Statistics(None, None, None, nan, wide.size - nan)
    return Statistics(
        float(held.min()), float(held.max()), float(held.mean()), nan, wide.size - held.size - nan
    )


def _types(values: Sequence[Value]) -> tuple[TensorType, ...]:
    return tuple(_type(value) for value in values if isinstance(value, np.ndarray))


def _type(value: Array) -> TensorType:
    return TensorType(dtype_text(value), value.shape)
