"""Narrow sums of bytes that end with QuantizeLinear."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.chains.wiring import Wiring, apply, chain
from tracer.accumulators.engine.node_output import Bytes, Dequantize, Finish
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes import ComputeSums
from tracer.interpreter.operators import Body
from tracer.interpreter.plan import Task
from tracer.interpreter.values import Value
from tracer.support.types import Array

OPERATORS = ("Conv", "Gemm", "MatMul", "AveragePool", "GlobalAveragePool", "ReduceMean",
             "ReduceSum")  # fmt: skip
_OPERANDS = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """The tasks after a sum, the last of which quantises, and what they do to its floats."""

    tasks: tuple[Task, ...]
    constants: tuple[list[Value], ...]
    bytes: Bytes

    def __call__(self, floats: Array) -> Array:
        """The bytes, one by one."""
        for task, constants in zip(self.tasks, self.constants, strict=True):
            floats = apply(task, [floats, *constants])
        return floats


def fused_sum(
    task: Task, summing: ComputeSums, runner: Callable[[], SumRunner], wiring: Wiring
) -> tuple[Task, tuple[Task, ...]]:
    """Returns the task that sums bytes, and the tasks that it replaces besides `task`."""
    ending = _ending(task, wiring)
    followers = () if ending is None else ending.tasks

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        sums = summing(inputs, runner())
        if ending is None:
            return (sums.output,)
        if isinstance(sums.restore, Dequantize) and sums.restore.dtype == np.float32:
            out = sums.compute(Finish(sums.restore, ending.bytes))
            if out is not None:
                return (out,)
        return (ending(sums.output),)

    operands = [wiring.bytes_before(name) for name in task.reads[:_OPERANDS]]
    reads = (*operands, *task.reads[_OPERANDS:])
    return chain(task, followers, kernel, reads), followers


def _ending(task: Task, wiring: Wiring) -> Ending | None:
    tasks, constants, last = [], [], task
    least, most = -np.inf, np.inf
    between = wiring.only_reader(task, "Relu", "Clip")
    if between is not None:
        known = wiring.constants(between, 1)
        if known is None or between.nodes[0].proto.attribute:
            return None
        limits = [0.0] if between.nodes[0].op_type == "Relu" else known
        least, most = (
            end if value is None else float(np.asarray(value).reshape(()))
            for value, end in zip([*limits, None, None][:2], (least, most), strict=True)
        )
        tasks, constants, last = [between], [known], between
    quantizer = wiring.only_reader(last, "QuantizeLinear")
    scale = None if quantizer is None else wiring.scale(quantizer)
    known = None if quantizer is None else wiring.constants(quantizer, 1)
    if quantizer is None or scale is None or known is None:
        return None
    made = Bytes(least, most, float(scale.scale), scale.zero, scale.dtype)
    return Ending((*tasks, quantizer), (*constants, known), made)
