"""Runs a plan: reads each step's inputs, calls its kernel, frees values after their last use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracer import limits
from tracer.errors import LimitError, ModelError, TracerError, out_of_memory
from tracer.graph.model import Model, describe
from tracer.graph.tensor_type import TensorType
from tracer.interpreter import values
from tracer.interpreter.observers import Observer
from tracer.interpreter.operators import Body
from tracer.interpreter.plan import BoundPlan, Plan, Step
from tracer.interpreter.values import Value
from tracer.support.types import type_text

_NO_BODIES: Mapping[str, Body] = {}


@dataclass(frozen=True, slots=True)
class BoundBody:
    """A `Body`: the plan of a graph attribute, bound to the values around its node."""

    bound: BoundPlan
    around: Sequence[Value]
    execution: Execution

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return self.bound.plan.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""
        return self.bound.plan.outputs

    @property
    def types(self) -> tuple[TensorType | None, ...]:
        """Declared types of the outputs; None for an output that is not a tensor."""
        return self.bound.plan.types

    def __call__(self, *inputs: Value) -> list[Value]:
        """Runs the graph once."""
        captured = [(inside, self.around[outside]) for outside, inside in self.bound.links]
        return self.execution.graph(self.bound.plan, inputs, captured)


class Execution:
    """Runs plans of one model within a budget; calls the observers around each node.

    A value is an item of a list, at the slot that the plan gave it.
    """

    def __init__(self, model: Model, observers: Sequence[Observer], budget: limits.Budget) -> None:
        self._model = model
        self._observers = observers
        self._budget = budget
        self._timed = budget.limits.seconds is not None
        self._errors = np.geterr()
        self._located = False

    def graph(
        self, plan: Plan, inputs: Sequence[Value], captured: Sequence[tuple[int, Value]] = ()
    ) -> list[Value]:
        """Runs a graph; optional inputs at the end may be missing. Returns its outputs in order.

        `captured` are slots of the plan with their values of the outer graph.
        """
        if len(inputs) > len(plan.inputs):
            raise ModelError(f"a body with {len(plan.inputs)} inputs got {len(inputs)}")
        alive = plan.template.copy()
        for slot, value in captured:
            alive[slot] = value
        for name, value in zip(plan.inputs, inputs, strict=False):
            self._store(alive, plan.slots[name], value)
        with self._budget.nested(), np.errstate(all="ignore"):
            self._run(plan.steps, alive)
        self._budget.release(sum(values.nbytes(alive[slot]) for slot in plan.kept))
        return [alive[slot] for slot in plan.output_slots]

    def part(
        self, plan: Plan, before: Mapping[str, Value], start: int, stop: int
    ) -> dict[str, Value]:
        """Runs steps `start` to `stop` - 1; returns the values alive afterwards."""
        alive = plan.template.copy()
        for name, value in before.items():
            self._store(alive, plan.slots[name], value)
        with self._budget.nested(), np.errstate(all="ignore"):
            self._run(plan.steps[start:stop], alive)
        return {n: alive[slot] for n, slot in plan.slots.items() if alive[slot] is not None}

    def _store(self, alive: list[Value], slot: int, value: Value) -> None:
        if not isinstance(value, np.ndarray):
            value = _plain(value)
        alive[slot] = value
        self._budget.hold(values.nbytes(value))

    def _run(self, steps: Sequence[Step], alive: list[Value]) -> None:
        """Runs steps; adds nodes, operators, opset and input types to whatever a step raises."""
        observed = bool(self._observers)
        for step in steps:
            inputs = [alive[slot] for slot in step.reads]
            if observed:
                with np.errstate(**self._errors):
                    for observer in self._observers:
                        observer.before(step.node, inputs)
            try:
                if self._timed:
                    self._budget.clock()
                if step.kernel is not None:
                    outputs = step.kernel(inputs, _NO_BODIES)
                else:
                    outputs = self._nested(step, inputs, alive)
                if len(outputs) < step.needed:
                    raise ModelError(f"{step.needed} outputs expected, {len(outputs)} computed")
            except Exception as error:
                raise self._failure(step, inputs, error) from error
            if observed:
                outputs = self._after(step, inputs, outputs)
            try:
                for position, slot in step.writes:
                    self._store(alive, slot, outputs[position])
            except LimitError as error:
                raise self._failure(step, inputs, error) from error
            for slot in step.frees:
                self._budget.release(values.nbytes(alive[slot]))
                alive[slot] = None

    def _nested(self, step: Step, inputs: Sequence[Value], alive: list[Value]) -> Sequence[Value]:
        """Computes a task that runs other graphs: a function, or a kernel with bodies."""
        task = step.task
        if task.expand is not None:
            return self.graph(task.expand(inputs), inputs)
        assert task.kernel is not None
        bodies = {name: BoundBody(bound, alive, self) for name, bound in step.bodies.items()}
        return task.kernel(inputs, bodies)

    def _after(
        self, step: Step, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Sequence[Value]:
        """Returns the outputs as the observers replace them."""
        outputs = [_plain(value) for value in outputs]
        with np.errstate(**self._errors):
            for observer in self._observers:
                replaced = observer.after(step.node, inputs, outputs)
                outputs = outputs if replaced is None else list(replaced)
        return outputs

    def _failure(self, step: Step, inputs: Sequence[Value], error: Exception) -> Exception:
        """Returns the error with its place, unless a step inside this one has named its own."""
        if self._located:
            return error
        self._located = True
        where = describe(self._model, step.task.nodes, step.task.opset)
        named = zip(step.task.reads, inputs, strict=True)
        types = ", ".join(f"{n}: {type_text(v)}" for n, v in named if n)
        where = f"{where} with {types or 'no inputs'}"
        if isinstance(error, TracerError):
            return type(error)(f"{where}: {error.what}", error.hint)
        if isinstance(error, MemoryError):
            return out_of_memory(f"{where}: out of memory")
        return ModelError(f"{where}: {error or type(error).__name__}")


def _plain(value: Value) -> Value:
    """Returns a numpy scalar as an array of rank 0."""
    return np.asarray(value) if isinstance(value, np.generic) else value
