"""Nodes that only move elements move the bytes before DequantizeLinear."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracer.accumulators.chains.tables import every_byte, looked_up
from tracer.accumulators.chains.wiring import Wiring, apply, chain
from tracer.interpreter.operators import Body
from tracer.interpreter.plan import Task
from tracer.interpreter.values import Value

MEASURES = ("Shape", "Size")
OPERATORS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather",
             "Expand", "Tile")  # fmt: skip


def measured(task: Task, wiring: Wiring) -> Task:
    """Returns the task that measures bytes in place of the floats made of them."""
    return replace(task, reads=(wiring.bytes_before(task.reads[0]),))


def fused_move(task: Task, wiring: Wiring) -> tuple[Task, tuple[Task, ...]] | None:
    """Returns the task that moves bytes, and the QuantizeLinear that it replaces besides `task`."""
    found, quantizer = wiring.source(task.reads[0]), wiring.only_reader(task, "QuantizeLinear")
    if found is None or quantizer is None or wiring.scale(quantizer) is None:
        return None
    dequantizer, scale = found
    before, after = wiring.constants(dequantizer, 1), wiring.constants(quantizer, 1)
    every = every_byte(scale.dtype)
    table = apply(quantizer, [apply(dequantizer, [every, *(before or ())]), *(after or ())])
    is_same = table.dtype == every.dtype and np.array_equal(table, every)

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        x, *others = inputs
        moved = apply(task, [x, *others])
        return (moved if is_same else looked_up(table[:, None], moved),)

    reads = (dequantizer.reads[0], *task.reads[1:])
    return chain(task, (quantizer,), kernel, reads), (quantizer,)
