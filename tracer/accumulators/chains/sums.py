"""Narrow sums of bytes that end with QuantizeLinear."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracer.accumulators.chains.wiring import Wiring, apply
from tracer.accumulators.engine.node_output import Bytes, Dequantize, Finish
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes import ComputeSums
from tracer.interpreter.binding import Body
from tracer.interpreter.plan import PlanStep
from tracer.interpreter.values import Value
from tracer.support.types import Array

OPERATORS = ("Conv", "Gemm", "MatMul")
_OPERANDS = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """The steps after a sum, the last of which quantises, and what they do to its floats."""

    steps: tuple[PlanStep, ...]
    constants: tuple[list[Value], ...]
    bytes: Bytes

    def __call__(self, floats: Array) -> Array:
        """The bytes, step by step."""
        for step, constants in zip(self.steps, self.constants, strict=True):
            floats = apply(step, [floats, *constants])
        return floats


def fused_sum(
    step: PlanStep, summing: ComputeSums, runner: Callable[[], SumRunner], wiring: Wiring
) -> tuple[PlanStep, tuple[PlanStep, ...]]:
    """Returns the step that sums bytes, and the steps that it replaces besides `step`."""
    ending = _ending(step, wiring)
    followers = () if ending is None else ending.steps

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        sums = summing(inputs, runner())
        if ending is None:
            return (sums.output,)
        if isinstance(sums.restore, Dequantize) and sums.restore.dtype == np.float32:
            out = sums.compute(Finish(sums.restore, ending.bytes))
            if out is not None:
                return (out,)
        return (ending(sums.output),)

    operands = [wiring.bytes_before(name) for name in step.reads[:_OPERANDS]]
    reads = (*operands, *step.reads[_OPERANDS:])
    writes = followers[-1].writes if followers else step.writes
    return replace(step, kernel=kernel, reads=reads, writes=writes), followers


def _ending(step: PlanStep, wiring: Wiring) -> Ending | None:
    steps, constants, last = [], [], step
    least, most = -np.inf, np.inf
    between = wiring.only_reader(step, "Relu", "Clip")
    if between is not None:
        known = wiring.constants(between, 1)
        if known is None or between.node.proto.attribute:
            return None
        limits = [0.0] if between.node.op_type == "Relu" else known
        least, most = (
            end if value is None else float(np.asarray(value).reshape(()))
            for value, end in zip([*limits, None, None][:2], (least, most), strict=True)
        )
        steps, constants, last = [between], [known], between
    quantizer = wiring.only_reader(last, "QuantizeLinear")
    scale = None if quantizer is None else wiring.scale(quantizer)
    known = None if quantizer is None else wiring.constants(quantizer, 1)
    if quantizer is None or scale is None or known is None:
        return None
    made = Bytes(least, most, float(scale.scale), scale.zero, scale.dtype)
    return Ending((*steps, quantizer), (*constants, known), made)
