"""Who computes and who reads the values of a graph, and which of them are bytes times a scale."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.interpreter.operators import Kernel
from tracer.interpreter.plan import Task
from tracer.interpreter.values import Value
from tracer.support.types import Array

BYTES = tuple(map(np.dtype, ("int8", "uint8")))
_QUANTIZED, _SCALE, _ZERO = range(3)
"""Inputs of QuantizeLinear and DequantizeLinear."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Bytes of a type are (floats / scale) + zero; `scale` is float32."""

    scale: Array
    zero: int
    dtype: np.dtype[Any]


class Wiring:
    """The values of the main graph by name; `narrow` are the keys of nodes whose sums count."""

    def __init__(
        self, tasks: Sequence[Task], outputs: Sequence[str], scales: TensorScales,
        folded: Mapping[str, Array], narrow: Collection[str],
    ) -> None:  # fmt: skip
        self._scales = scales
        self._narrow = narrow
        self._folded = folded
        self._outputs = set(outputs)
        self._computed_by = {name: task for task in tasks for name in task.writes}
        self._readers: dict[str, list[Task]] = defaultdict(list)
        for task in tasks:
            for name in task.captures:
                self._readers[name].append(task)

    def computed_by(self, name: str, *operators: str) -> Task | None:
        """The task that computes a value, if its operator is one of these."""
        task = self._computed_by.get(name)
        return task if task is not None and _operator(task) in operators else None

    def only_reader(self, task: Task, *operators: str) -> Task | None:
        """The one task that reads the one output of `task`, if its operator is one of these.

        A narrow sum is none of them: its statistics are of the values of a run.
        """
        name, readers = task.writes[0], self._readers[task.writes[0]]
        if len(task.writes) > 1 or len(readers) != 1 or name in self._outputs:
            return None
        reader = readers[0]
        if reader.nodes[0].key in self._narrow:
            return None
        first = reader.reads[0] == name and not reader.bodies
        return reader if first and _operator(reader) in operators else None

    def constants(self, task: Task, first: int) -> list[Value] | None:
        """The inputs of a task from the `first` on; None unless all are stored."""
        names = task.reads[first:]
        found = [self._folded.get(name, self._scales.value(name, task.nodes[0].scope))
                 if name else None for name in names]  # fmt: skip
        missing = any(name and value is None for name, value in zip(names, found, strict=True))
        return None if missing else found

    def source(self, name: str) -> tuple[Task, Scale] | None:
        """The DequantizeLinear that makes floats of bytes, all with one scale."""
        task = self.computed_by(name, "DequantizeLinear")
        scale = None if task is None else self.scale(task)
        return None if task is None or scale is None else (task, scale)

    def bytes_before(self, name: str) -> str:
        """The name of the bytes that a value is made of; the name itself if there are none."""
        task = self.computed_by(name, "DequantizeLinear")
        stored = None if task is None else self.constants(task, _QUANTIZED)
        is_stored = stored is not None and stored[_QUANTIZED].dtype in BYTES
        found = task is not None and (is_stored or self.scale(task) is not None)
        return task.reads[_QUANTIZED] if found and task is not None else name

    def scale(self, task: Task) -> Scale | None:
        """The scale of QuantizeLinear or DequantizeLinear, if it is one number, stored."""
        constants = self.constants(task, _SCALE)
        attributes = {a.name for a in task.nodes[0].proto.attribute}
        if constants is None or len(constants) < _ZERO or attributes - {"axis"}:
            return None
        scale, zero = constants[0], constants[1]
        single = scale.size == 1 and zero is not None and zero.size == 1
        if not single or scale.dtype != np.float32 or zero.dtype not in BYTES or not scale > 0:
            return None
        return Scale(scale.reshape(()), int(zero.reshape(())), zero.dtype)

    @staticmethod
    def is_plain(task: Task, *operators: str) -> bool:
        """Whether a task is one of these operators."""
        return _operator(task) in operators


def _operator(task: Task) -> str:
    """The operator's name; "" for one that is not ONNX's, or that a function body computes."""
    return "" if task.nodes[0].domain or task.kernel is None else task.nodes[0].op_type


def chain(task: Task, followers: Sequence[Task], kernel: Kernel, reads: Sequence[str]) -> Task:
    """Returns the task that computes what `task` and its followers compute one after the other."""
    nodes = (*task.nodes, *(node for follower in followers for node in follower.nodes))
    writes = followers[-1].writes if followers else task.writes
    return replace(task, nodes=nodes, kernel=kernel, reads=tuple(reads), writes=writes)


def apply(task: Task, inputs: Sequence[Value]) -> Array:
    """The first output of a task without bodies."""
    assert task.kernel is not None
    with np.errstate(all="ignore"):
        return np.asarray(task.kernel(inputs, {})[0])
