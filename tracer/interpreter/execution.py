"""Runs a plan: reads each node's inputs, calls its kernel, frees values after their last use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracer import limits
from tracer.errors import LimitError, ModelError, TracerError
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType
from tracer.interpreter import values
from tracer.interpreter.binding import Body
from tracer.interpreter.observers import Observer
from tracer.interpreter.plan import Plan, PlanStep, describe
from tracer.interpreter.values import Value
from tracer.support.types import type_text


class Frame:
    """The values of one graph during a run; other names are looked up in the outer frames."""

    __slots__ = ("outer", "values", "weights")

    def __init__(self, plan: Plan, outer: Frame | None) -> None:
        self.values: dict[str, Value] = {"": None}
        self.weights = plan.weights
        self.outer = outer

    def read(self, name: str) -> Value:
        """Returns the value of `name`. Raises ModelError if no node has computed it."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.values:
                return frame.values[name]
            if name in frame.weights:
                return frame.weights[name]
            frame = frame.outer
        raise ModelError(f"no node has computed the value '{name}'")


@dataclass(frozen=True, slots=True)
class BoundBody:
    """A `Body`: the plan of a graph attribute, bound to the scope of its node."""

    plan: Plan
    frame: Frame
    execution: Execution

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return self.plan.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""
        return self.plan.outputs

    @property
    def types(self) -> tuple[TensorType | None, ...]:
        """Declared types of the outputs; None for an output that is not a tensor."""
        return self.plan.types

    def __call__(self, *inputs: Value) -> list[Value]:
        """Runs the graph once."""
        return self.execution.graph(self.plan, inputs, self.frame)


class Execution:
    """Runs plans of one model within a budget; calls the observers around each node."""

    def __init__(self, model: Model, observers: Sequence[Observer], budget: limits.Budget) -> None:
        self._model = model
        self._observers = observers
        self._budget = budget
        self._located = False

    def graph(self, plan: Plan, inputs: Sequence[Value], outer: Frame | None) -> list[Value]:
        """Runs a graph; optional inputs at the end may be missing. Returns its outputs in order."""
        frame = Frame(plan, outer)
        with self._budget.nested():
            if len(inputs) > len(plan.inputs):
                raise ModelError(f"a body with {len(plan.inputs)} inputs got {len(inputs)}")
            for name, value in zip(plan.inputs, inputs, strict=False):
                self._store(frame, name, value)
            for name in plan.inputs[len(inputs) :]:
                frame.values[name] = None
            for step in plan.steps:
                self._node(step, frame)
            outputs = [frame.read(name) for name in plan.outputs]
        self._budget.release(sum(values.nbytes(value) for value in frame.values.values()))
        return outputs

    def part(
        self, plan: Plan, alive: Mapping[str, Value], start: int, stop: int
    ) -> dict[str, Value]:
        """Runs steps `start` to `stop` - 1; returns the values alive afterwards."""
        frame = Frame(plan, None)
        with self._budget.nested():
            for name, value in alive.items():
                self._store(frame, name, value)
            for step in plan.steps[start:stop]:
                self._node(step, frame)
        return {name: value for name, value in frame.values.items() if name}

    def _node(self, step: PlanStep, frame: Frame) -> None:
        inputs = [frame.read(name) for name in step.reads]
        for observer in self._observers:
            observer.before(step.node, inputs)
        outputs = self._compute(step, frame, inputs)
        for observer in self._observers:
            replaced = observer.after(step.node, inputs, outputs)
            outputs = outputs if replaced is None else list(replaced)
        for name, value in zip(step.writes, outputs, strict=False):
            if name:
                self._store(frame, name, value)
        for name in step.frees:
            if name in frame.values:  # an optional output may be absent
                self._budget.release(values.nbytes(frame.values.pop(name)))

    def _compute(self, step: PlanStep, frame: Frame, inputs: Sequence[Value]) -> list[Value]:
        """Runs the kernel; adds node, operator, opset and input types to whatever it raises."""
        try:
            self._budget.clock()
            if step.expand is not None:
                outputs: Sequence[Value] = self.graph(step.expand(inputs), inputs, None)
            else:
                assert step.kernel is not None
                bodies: Mapping[str, Body] = {
                    name: BoundBody(plan, frame, self) for name, plan in step.bodies.items()
                }
                with np.errstate(all="ignore"):  # NaN and Inf are results, as in every runtime
                    outputs = step.kernel(inputs, bodies)
            return _checked(step, outputs)
        except Exception as error:
            if self._located:  # by a node inside this one
                raise
            self._located = True
            raise self._failure(step, inputs, error) from error

    def _failure(self, step: PlanStep, inputs: Sequence[Value], error: Exception) -> TracerError:
        where = describe(self._model, step.node, step.opset)
        named = zip(step.reads, inputs, strict=True)
        types = ", ".join(f"{n}: {type_text(v)}" for n, v in named if n)
        where = f"{where} with {types or 'no inputs'}"
        if isinstance(error, TracerError):
            return type(error)(f"{where}: {error.what}", error.hint)
        if isinstance(error, MemoryError):
            return LimitError(f"{where}: out of memory", "Lower the batch, or use less elsewhere.")
        return ModelError(f"{where}: {error or type(error).__name__}")

    def _store(self, frame: Frame, name: str, value: Value) -> None:
        frame.values[name] = value
        self._budget.hold(values.nbytes(value))


def _checked(step: PlanStep, outputs: Sequence[Value]) -> list[Value]:
    """Returns numpy scalars as arrays of rank 0. Raises ModelError if an output is missing."""
    names = step.writes
    if any(names[len(outputs) :]):
        raise ModelError(f"{len(names)} outputs expected, {len(outputs)} computed")
    return [np.asarray(value) if isinstance(value, np.generic) else value for value in outputs]
