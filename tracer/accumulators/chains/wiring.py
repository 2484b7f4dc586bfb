"""Who computes and who reads the values of a graph, and which of them are bytes times a scale."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.interpreter.plan import Plan, PlanStep
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
    """The values of the main graph by name."""

    def __init__(self, plan: Plan, scales: TensorScales, folded: Mapping[str, Array]) -> None:
        self._scales = scales
        self._folded = folded
        self._outputs = set(plan.outputs)
        self._computed_by = {name: step for step in plan.steps for name in step.writes}
        self._readers: dict[str, list[PlanStep]] = defaultdict(list)
        for step in plan.steps:
            for name in step.captures:
                self._readers[name].append(step)

    def computed_by(self, name: str, *operators: str) -> PlanStep | None:
        """The step that computes a value, if its operator is one of these."""
        step = self._computed_by.get(name)
        return step if step is not None and _operator(step) in operators else None

    def only_reader(self, step: PlanStep, *operators: str) -> PlanStep | None:
        """The one step that reads the one output of `step`, if its operator is one of these."""
        name, readers = step.writes[0], self._readers[step.writes[0]]
        if len(step.writes) > 1 or len(readers) != 1 or name in self._outputs:
            return None
        reader = readers[0]
        first = reader.reads[0] == name and not reader.bodies
        return reader if first and _operator(reader) in operators else None

    def constants(self, step: PlanStep, first: int) -> list[Value] | None:
        """The inputs of a step from the `first` on; None unless all are stored."""
        names = step.reads[first:]
        found = [self._folded.get(name, self._scales.value(name, step.node.scope))
                 if name else None for name in names]  # fmt: skip
        missing = any(name and value is None for name, value in zip(names, found, strict=True))
        return None if missing else found

    def source(self, name: str) -> tuple[PlanStep, Scale] | None:
        """The DequantizeLinear that makes floats of bytes, all with one scale."""
        step = self.computed_by(name, "DequantizeLinear")
        scale = None if step is None else self.scale(step)
        return None if step is None or scale is None else (step, scale)

    def bytes_before(self, name: str) -> str:
        """The name of the bytes that a value is made of; the name itself if there are none."""
        step = self.computed_by(name, "DequantizeLinear")
        stored = None if step is None else self.constants(step, _QUANTIZED)
        is_stored = stored is not None and stored[_QUANTIZED].dtype in BYTES
        found = step is not None and (is_stored or self.scale(step) is not None)
        return step.reads[_QUANTIZED] if found and step is not None else name

    def scale(self, step: PlanStep) -> Scale | None:
        """The scale of QuantizeLinear or DequantizeLinear, if it is one number, stored."""
        constants = self.constants(step, _SCALE)
        attributes = {a.name for a in step.node.proto.attribute}
        if constants is None or len(constants) < _ZERO or attributes - {"axis"}:
            return None
        scale, zero = constants[0], constants[1]
        single = scale.size == 1 and zero is not None and zero.size == 1
        if not single or scale.dtype != np.float32 or zero.dtype not in BYTES or not scale > 0:
            return None
        return Scale(scale.reshape(()), int(zero.reshape(())), zero.dtype)

    @staticmethod
    def is_plain(step: PlanStep, *operators: str) -> bool:
        """Whether a step is one of these operators."""
        return _operator(step) in operators


def _operator(step: PlanStep) -> str:
    """The operator's name; "" for one that is not ONNX's, or that a function body computes."""
    return "" if step.node.domain or step.kernel is None else step.node.op_type


def apply(step: PlanStep, inputs: Sequence[Value]) -> Array:
    """The first output of a step without bodies."""
    assert step.kernel is not None
    with np.errstate(all="ignore"):
        return np.asarray(step.kernel(inputs, {})[0])
