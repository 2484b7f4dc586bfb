"""A graph prepared for many runs: what to call, and which values it reads, writes and frees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracer.graph.model import Node
from tracer.graph.tensor_type import TensorType
from tracer.interpreter.operators import Kernel
from tracer.interpreter.values import Value
from tracer.support.types import Array

Expand = Callable[[Sequence[Value]], "Plan"]
"""Returns the plan of a function body, by the types of its inputs."""


@dataclass(frozen=True, slots=True)
class Task:
    """What computes one node, or several: a kernel, or `expand`. Values go by their names.

    `reads` and `writes` are in the order of the kernel's inputs and outputs; '' is an omitted one.
    """

    nodes: tuple[Node, ...]
    opset: int
    kernel: Kernel | None
    expand: Expand | None
    bodies: Mapping[str, Plan]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def captures(self) -> tuple[str, ...]:
        """Every value that the task reads, itself or in its bodies."""
        return (*self.reads, *(name for body in self.bodies.values() for name in body.captures))


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """The plan of a body; `links` are the slots it captures, outside and inside."""

    plan: Plan
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A task whose values go by their slots in a list.

    `kernel` is None for a task that runs other graphs. `writes` pairs positions among the outputs
    with slots; at least `needed` outputs must come. No later step reads the slots of `frees`.
    """

    task: Task
    kernel: Kernel | None
    bodies: Mapping[str, BoundPlan]
    reads: tuple[int, ...]
    writes: tuple[tuple[int, int], ...]
    needed: int
    frees: tuple[int, ...]

    @property
    def node(self) -> Node:
        """The first node of the task."""
        return self.task.nodes[0]


@dataclass(frozen=True)
class Plan:
    """A graph prepared for many runs.

    A run begins with a copy of `template`, a list with the weights in their slots, and None for
    whatever is to be computed. `slots` has the inputs and what nodes compute, by name; `captures`
    has the names to take from the outer graph. `kept` are the slots that no step frees.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[TensorType | None, ...]
    template: list[Value] = field(repr=False)
    slots: Mapping[str, int] = field(repr=False)
    captures: Mapping[str, int] = field(repr=False)
    output_slots: tuple[int, ...] = field(repr=False)
    kept: tuple[int, ...] = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    weights: Mapping[str, Array] = field(repr=False)


Fuse = Callable[[Plan], tuple[Sequence[Task], Mapping[str, Array]]]
"""Returns tasks that compute the outputs of a plan, and further constants that they read."""


def fused(plan: Plan, fuse: Fuse) -> Plan:
    """Returns a plan of other tasks with the same inputs and outputs."""
    tasks, constants = fuse(plan)
    weights = {**plan.weights, **constants}
    return schedule(tasks, plan.inputs, plan.outputs, plan.types, weights)


def schedule(
    tasks: Sequence[Task],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    types: tuple[TensorType | None, ...],
    weights: Mapping[str, Array],
) -> Plan:
    """Returns the plan that runs `tasks` in their order.

    A value is freed after the last task that reads it, or that writes it if none reads it. Outputs
    of the graph and values captured from the outer graph are never freed.
    """
    slots = _Slots(inputs, weights)
    placed = [_placed(task, slots) for task in tasks]
    output_slots = tuple(slots.of(name) for name in outputs)
    last = {
        slot: number
        for number, step in enumerate(placed)
        for slot in (
            *step.reads,
            *(outside for body in step.bodies.values() for outside, _ in body.links),
            *(slot for _, slot in step.writes),
        )
        if slot in slots.owned and slot not in output_slots
    }
    frees: list[list[int]] = [[] for _ in placed]
    for slot, number in last.items():
        frees[number].append(slot)
    return Plan(
        inputs, outputs, types, slots.template,
        {name: slot for name, slot in slots.named.items() if slot in slots.owned},
        slots.captures, output_slots,
        tuple(slot for slot in slots.owned if slot not in last),
        tuple(replace(step, frees=tuple(free)) for step, free in zip(placed, frees, strict=True)),
        weights,
    )  # fmt: skip


class _Slots:
    """Numbers the values of one graph, in the order in which they appear. Slot 0 is None.

    A name that is neither an input, a weight nor computed before is captured.
    """

    def __init__(self, inputs: Sequence[str], weights: Mapping[str, Array]) -> None:
        self.template: list[Value] = [None]
        self.named = {"": 0}
        self.captures: dict[str, int] = {}
        self.owned: dict[int, None] = {}
        for name, array in weights.items():
            self._add(name, array)
        for name in inputs:
            self.write(name)

    def write(self, name: str) -> int:
        """Returns a new slot."""
        slot = self._add(name, None)
        self.owned[slot] = None
        return slot

    def of(self, name: str) -> int:
        """Returns the slot of a value."""
        if name not in self.named:
            self.captures[name] = self._add(name, None)
        return self.named[name]

    def _add(self, name: str, value: Value) -> int:
        self.named[name] = len(self.template)
        self.template.append(value)
        return self.named[name]


def _placed(task: Task, slots: _Slots) -> Step:
    """Returns the step of a task, without what it frees."""
    reads = tuple(slots.of(name) for name in task.reads)
    bodies = {
        attribute: BoundPlan(
            plan, tuple((slots.of(name), inside) for name, inside in plan.captures.items())
        )
        for attribute, plan in task.bodies.items()
    }
    writes = tuple((at, slots.write(name)) for at, name in enumerate(task.writes) if name)
    needed = writes[-1][0] + 1 if writes else 0
    kernel = None if bodies else task.kernel
    return Step(task, kernel, bodies, reads, writes, needed, ())
