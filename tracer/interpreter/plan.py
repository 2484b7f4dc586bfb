"""Plans a graph for many runs: what computes each node, which values it reads, writes and frees."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tracer.errors import ModelError, TracerError, locate_errors
from tracer.graph import element_types, stored_weights, tensor_type
from tracer.graph.model import Model, Node, describe, signature
from tracer.interpreter import fallback as fallbacks
from tracer.interpreter import operators, values
from tracer.interpreter.operators import Body, Kernel, NodeContext, Operator, Registry, standard
from tracer.interpreter.values import Value
from tracer.support.types import Array, type_text

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
    bodies: "Mapping[str, Plan]"
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def captures(self) -> tuple[str, ...]:
        """Every value that the task reads, itself or in its bodies."""
        return (*self.reads, *(name for body in self.bodies.values() for name in body.captures))


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """The plan of a body; `links` are the slots it captures, outside and inside."""

    plan: "Plan"
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
    types: tuple[tensor_type.TensorType | None, ...]
    template: list[Value] = field(repr=False)
    slots: Mapping[str, int] = field(repr=False)
    captures: Mapping[str, int] = field(repr=False)
    output_slots: tuple[int, ...] = field(repr=False)
    kept: tuple[int, ...] = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    weights: Mapping[str, Array] = field(repr=False)


Fuse = Callable[[Plan], tuple[Sequence[Task], Mapping[str, Array]]]
"""Returns tasks that compute the outputs of a plan, and further constants that they read."""
WrapKernel = Callable[[Node, Kernel], Kernel]
"""Returns the kernel that replaces a node's kernel; the seam for other arithmetic."""


class Planner:
    """Plans the graphs of one model.

    `own` holds the caller's operators; `wrap_kernel` may replace the kernel of any node; `fallback`
    computes the nodes that nothing else does, see `uncomputed`.
    """

    def __init__(
        self, model: Model, own: Registry, folder: Path | None, wrap_kernel: WrapKernel | None =
        None, fallback: fallbacks.Fallback | None = None,
    ) -> None:  # fmt: skip
        self._model = model
        self._own = own
        self._room = operators.MemoryBudget()
        self._folder = folder
        self._wrap_kernel = wrap_kernel
        self._fallback = fallback
        self._is_large = stored_weights.is_large(model)
        self._functions = model.functions

    @cached_property
    def uncomputed(self) -> tuple[Node, ...]:
        """The nodes that nothing but the fallback computes."""
        found = []
        for node in self._model.nodes:
            opset = self._opset(node)
            known = self._operator(node, opset) is not None or self._local(node) is not None
            if not (
                known or fallbacks.has_reference(node, opset) or fallbacks.has_body(node, opset)
            ):
                found.append(node)
        return tuple(found)

    def plan(self) -> Plan:
        """Returns the plan of the main graph, which holds the plans of its bodies.

        Raises ModelError, which names all operators that nothing computes.
        """
        fallback, opsets = self._fallback, self._model.opsets
        missing = [n for n in self.uncomputed if fallback is None or fallback.refuses(n, opsets)]
        if missing:
            raise fallbacks.refusal(self._model, missing, fallback)
        plan = self._graph(self._model.graph, self._model.root)
        for name in plan.captures:
            raise ModelError(f"{self._model.name}: no node computes the value '{name}'")
        return plan

    def _graph(self, graph: onnx.GraphProto, path: str) -> Plan:
        outputs = tuple(value.name for value in graph.output)
        with locate_errors(self._model.name):
            weights = {w.name: values.from_tensor(w, self._folder) for w in graph.initializer}
            for sparse in graph.sparse_initializer:
                weights[sparse.values.name] = values.from_sparse(sparse, self._folder)
        inputs = tuple(value.name for value in graph.input if value.name not in weights)
        types = tuple(tensor_type.from_type_proto(value.type) for value in graph.output)
        constants = {"", *weights}
        nodes = self._model.nodes_by_graph.get(path, ())
        tasks = [self._task(node, constants) for node in nodes]
        return schedule(_postponed(tasks, constants), inputs, outputs, types, weights)

    def _task(self, node: Node, constants: set[str]) -> Task:
        """Returns the task of a node; adds its outputs to `constants` if the inputs are among them.

        Other operators than ours may compute anything, anew in each run.
        """
        opset = self._opset(node)
        bodies = {
            attribute.name: self._graph(attribute.g, f"{node.key}.{attribute.name}")
            for attribute in node.proto.attribute
            if attribute.HasField("g")
        }
        operator = self._operator(node, opset)
        try:
            attributes = values.attributes_of(node.proto, self._folder)
            fixed = constants.intersection(node.inputs)
            kernel, expand = self._computation(
                node, opset, operator, attributes, tuple(bodies), fixed
            )
        except Exception as error:  # onnx.reference checks attributes when it is constructed
            where = describe(self._model, (node,), opset)
            if isinstance(error, TracerError):
                raise type(error)(f"{where}: {error.what}", error.hint) from error
            raise ModelError(f"{where}: {error}") from error
        name = node.domain, node.op_type, opset
        ours = operator is not None and operator is standard().find(*name)
        if kernel is not None and self._wrap_kernel is not None:
            plain, kernel = kernel, self._wrap_kernel(node, kernel)
            ours = ours and kernel is plain
        if kernel is not None and operator is not None:
            kernel = operators.checked(kernel, operator, attributes)
        types = element_types.signature_of(*name)
        is_own = self._local(node) is not None or self._own.find(*name) is not None
        if types is not None and not is_own:  # the node is what its name says
            kernel = operators.typed(kernel, types) if kernel is not None else None
            expand = operators.typed(expand, types) if expand is not None else None
        if kernel is not None and ours and not bodies and constants.issuperset(node.inputs):
            kernel = operators.once(kernel, self._room)
            constants.update(node.outputs)
        if kernel is not None and self._is_large:
            kernel = _leaving_mapped_weights(kernel)
        return Task((node,), opset, kernel, expand, bodies, node.inputs, node.outputs)

    def _operator(self, node: Node, opset: int) -> Operator | None:
        """Returns the caller's operator, or ours where the model has no function of its own."""
        operator = self._own.find(node.domain, node.op_type, opset)
        if operator is None and self._local(node) is None:
            return standard().find(node.domain, node.op_type, opset)
        return operator

    def _local(self, node: Node) -> onnx.FunctionProto | None:
        return self._functions.get(signature(node.proto)) if self._functions else None

    def _computation(
        self, node: Node, opset: int, operator: Operator | None, attributes: Mapping[str, Any],
        bodies: Sequence[str], fixed: set[str],
    ) -> tuple[Kernel | None, Expand | None]:  # fmt: skip
        """Tries the operator, the model's function, onnx's kernel, the function body, the fallback.

        Inputs that are the same in all runs are `fixed`.
        """
        if operator is not None:
            bound = operators.bind(operator.function, NodeContext(node, opset), attributes, bodies)
            return operators.with_room(bound, operator.copies), None
        local = self._local(node)
        if local is not None:
            return None, self._expansion(node, opset, local)
        kernel = fallbacks.reference_kernel(node, opset, self._model.opsets)
        if kernel is not None:
            return kernel, None
        if fallbacks.has_body(node, opset):
            return None, self._expansion(node, opset, None)
        assert self._fallback is not None  # `plan` refuses the node without
        return self._fallback.kernel(node, self._model, fixed), None

    def _expansion(self, node: Node, opset: int, function: onnx.FunctionProto | None) -> Expand:
        """Returns what plans the function's body, once for each combination of input types."""
        plans: dict[tuple[str, ...], Plan] = {}

        def expand(inputs: Sequence[Value]) -> Plan:
            types = tuple(type_text(value) for value in inputs)
            if types not in plans:
                body = function or fallbacks.standard_function(node, self._model.opsets, inputs)
                called = fallbacks.instantiate(body, node, opset)
                inner = Planner(called, self._own, None, fallback=self._fallback)
                inner._functions = self._functions
                plans[types] = inner.plan()
            return plans[types]

        return expand

    def _opset(self, node: Node) -> int:
        opset = self._model.opsets.get(node.domain)
        if opset is None:
            raise ModelError(
                f"{self._model.name}: node '{node.key}' ({node.op_type}) is of the domain "
                f"'{node.domain}', which the model does not import",
                f"It imports {', '.join(repr(d) for d in self._model.opsets) or 'none'}.",
            )
        return opset


def fused(plan: Plan, fuse: Fuse) -> Plan:
    """Returns a plan of other tasks with the same inputs and outputs."""
    tasks, constants = fuse(plan)
    weights = {**plan.weights, **constants}
    return schedule(tasks, plan.inputs, plan.outputs, plan.types, weights)


def schedule(
    tasks: Sequence[Task], inputs: tuple[str, ...], outputs: tuple[str, ...], types:
    tuple[tensor_type.TensorType | None, ...], weights: Mapping[str, Array],
) -> Plan:  # fmt: skip
    """Returns the plan that runs `tasks` in their order.

    A value is freed after the last task that reads it, or that writes it if none reads it. Outputs
    of the graph and values captured from the outer graph are never freed.
    """
    slots = _Slots(inputs, weights)
    placed = [slots.place(task) for task in tasks]
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

    def place(self, task: Task) -> Step:
        """Returns the step of a task, without what it frees."""
        reads = tuple(self.of(name) for name in task.reads)
        bodies = {
            attribute: BoundPlan(
                plan, tuple((self.of(name), inside) for name, inside in plan.captures.items())
            )
            for attribute, plan in task.bodies.items()
        }
        writes = tuple((at, self.write(name)) for at, name in enumerate(task.writes) if name)
        needed = writes[-1][0] + 1 if writes else 0
        kernel = None if bodies else task.kernel
        return Step(task, kernel, bodies, reads, writes, needed, ())


def _postponed(tasks: Sequence[Task], constants: set[str]) -> list[Task]:
    """Puts what follows from weights alone right before the first task that reads it.

    A quantised graph begins with the floats of all its weights, which would be alive together.
    """
    order: list[Task] = []
    waiting: dict[str, int] = {}

    def due(names: Iterable[str]) -> list[Task]:
        found, unseen = set[int](), list(names)
        while unseen:
            at = waiting.get(unseen.pop())
            if at is not None:
                found.add(at)
                unseen += tasks[at].captures
                for name in tasks[at].writes:
                    waiting.pop(name, None)
        return [tasks[at] for at in sorted(found)]

    for at, task in enumerate(tasks):
        if task.writes and constants.issuperset(task.writes):
            waiting.update((name, at) for name in task.writes if name)
        else:
            order += [*due(task.captures), task]
    return order + due(list(waiting))


def _leaving_mapped_weights(kernel: Kernel) -> Kernel:
    """Returns `kernel`, after which the pages of its mapped inputs are left to the system.

    The system still has them in its cache, so a later run reads no disk unless memory is short.
    """

    def kernel_leaving(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        outputs = kernel(inputs, bodies)
        for value in inputs:
            if isinstance(value, np.ndarray):
                stored_weights.unmap(value)
        return outputs

    return kernel_leaving
