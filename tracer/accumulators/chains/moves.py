"""Nodes that only move elements move the bytes before DequantizeLinear."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracer.accumulators.chains.tables import every_byte, looked_up
from tracer.accumulators.chains.wiring import Wiring, apply
from tracer.interpreter.binding import Body
from tracer.interpreter.plan import PlanStep
from tracer.interpreter.values import Value

OPERATORS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather",
             "Expand", "Tile")  # fmt: skip


def fused_move(step: PlanStep, wiring: Wiring) -> tuple[PlanStep, tuple[PlanStep, ...]] | None:
    """Returns the step that moves bytes, and the QuantizeLinear that it replaces besides `step`."""
    found, quantizer = wiring.source(step.reads[0]), wiring.only_reader(step, "QuantizeLinear")
    if found is None or quantizer is None or wiring.scale(quantizer) is None:
        return None
    dequantizer, scale = found
    before, after = wiring.constants(dequantizer, 1), wiring.constants(quantizer, 1)
    every = every_byte(scale.dtype)
    table = apply(quantizer, [apply(dequantizer, [every, *(before or ())]), *(after or ())])
    is_same = table.dtype == every.dtype and np.array_equal(table, every)

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        x, *others = inputs
        return (apply(step, [x if is_same else looked_up(table[:, None], x), *others]),)

    reads = (dequantizer.reads[0], *step.reads[1:])
    return replace(step, kernel=kernel, reads=reads, writes=quantizer.writes), (quantizer,)
