"""Plans a graph for many runs: finds what computes each node, then schedules it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tracer.errors import ModelError, TracerError
from tracer.graph import element_types, footprint, stored_weights, tensor_type
from tracer.graph.model import Model, Node, describe
from tracer.interpreter import operators, values
from tracer.interpreter.constants import MemoryBudget, once
from tracer.interpreter.fallback import (
    Fallback,
    has_body,
    has_reference,
    instantiate,
    local_functions,
    reference_kernel,
    refusal,
    standard_function,
)
from tracer.interpreter.operators import (
    Body,
    Kernel,
    NodeContext,
    Operator,
    Registry,
    bind,
    standard,
    with_room,
)
from tracer.interpreter.plan import Expand, Plan, Task, schedule
from tracer.interpreter.values import Value
from tracer.support.types import type_text

WrapKernel = Callable[[Node, Kernel], Kernel]
"""Returns the kernel that replaces a node's kernel; the seam for other arithmetic."""


class Planner:
    """Plans the graphs of one model.

    `own` holds the caller's operators; `wrap_kernel` may replace the kernel of any node; `fallback`
    computes the nodes that nothing else does, see `uncomputed`.
    """

    def __init__(
        self,
        model: Model,
        own: Registry,
        folder: Path | None,
        wrap_kernel: WrapKernel | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        self._model = model
        self._own = own
        self._room = MemoryBudget()
        self._folder = folder
        self._wrap_kernel = wrap_kernel
        self._fallback = fallback
        self._is_large = footprint.is_large(model)
        self._functions = local_functions(model)
        self._nodes: dict[str, list[Node]] = defaultdict(list)
        for node in model.nodes:
            self._nodes[node.scope.path].append(node)

    @cached_property
    def uncomputed(self) -> tuple[Node, ...]:
        """The nodes that nothing but the fallback computes."""
        return tuple(node for node in self._model.nodes if not self._is_computed(node))

    def plan(self) -> Plan:
        """Returns the plan of the main graph, which holds the plans of its bodies.

        Raises ModelError, which names all operators that nothing computes.
        """
        fallback, opsets = self._fallback, self._model.opsets
        missing = [n for n in self.uncomputed if fallback is None or fallback.refuses(n, opsets)]
        if missing:
            raise refusal(self._model, missing, fallback)
        plan = self._graph(self._model.graph, self._model.root)
        for name in plan.captures:
            raise ModelError(f"{self._model.name}: no node computes the value '{name}'")
        return plan

    def _graph(self, graph: onnx.GraphProto, path: str) -> Plan:
        nodes = self._nodes[path]
        outputs = tuple(value.name for value in graph.output)
        try:
            weights = {w.name: values.from_tensor(w, self._folder) for w in graph.initializer}
            for sparse in graph.sparse_initializer:
                weights[sparse.values.name] = values.from_sparse(sparse, self._folder)
        except TracerError as error:
            raise type(error)(f"{self._model.name}: {error.what}", error.hint) from error
        inputs = tuple(value.name for value in graph.input if value.name not in weights)
        types = tuple(tensor_type.from_type_proto(value.type) for value in graph.output)
        constants = {"", *weights}
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
            attributes = {
                a.name: values.from_attribute(a, self._folder)
                for a in node.proto.attribute
                if not a.HasField("g")
            }
            kernel, expand = self._computation(node, opset, operator, attributes, tuple(bodies))
            if kernel is None and expand is None:
                assert self._fallback is not None  # `plan` refuses the node without
                fixed = constants.intersection(node.inputs)
                kernel = self._fallback.kernel(node, self._model, fixed)
        except Exception as error:  # onnx.reference checks attributes when it is constructed
            where = describe(self._model, (node,), opset)
            if isinstance(error, TracerError):
                raise type(error)(f"{where}: {error.what}", error.hint) from error
            raise ModelError(f"{where}: {error}") from error
        ours = operator is not None and operator is standard().find(*_name(node, opset))
        if kernel is not None and self._wrap_kernel is not None:
            plain, kernel = kernel, self._wrap_kernel(node, kernel)
            ours = ours and kernel is plain
        if kernel is not None and operator is not None:
            kernel = operators.checked(kernel, operator, attributes)
        types = element_types.signature_of(node.domain, node.op_type, opset)
        is_own = self._local(node) is not None or self._own.find(*_name(node, opset)) is not None
        if types is not None and not is_own:  # the node is what its name says
            kernel = operators.typed(kernel, types) if kernel is not None else None
            expand = operators.typed(expand, types) if expand is not None else None
        if kernel is not None and ours and not bodies and constants.issuperset(node.inputs):
            kernel = once(kernel, self._room)
            constants.update(node.outputs)
        if kernel is not None and self._is_large:
            kernel = _leaving_mapped_weights(kernel)
        return Task((node,), opset, kernel, expand, bodies, node.inputs, node.outputs)

    def _operator(self, node: Node, opset: int) -> Operator | None:
        """Returns the caller's operator, or ours where the model has no function of its own."""
        operator = self._own.find(*_name(node, opset))
        if operator is None and self._local(node) is None:
            return standard().find(*_name(node, opset))
        return operator

    def _is_computed(self, node: Node) -> bool:
        """Whether something computes the node besides the fallback."""
        opset = self._opset(node)
        known = self._operator(node, opset) is not None or self._local(node) is not None
        return known or has_reference(node, opset) or has_body(node, opset)

    def _local(self, node: Node) -> onnx.FunctionProto | None:
        return self._functions.get((node.domain, node.op_type, node.proto.overload))

    def _computation(
        self,
        node: Node,
        opset: int,
        operator: Operator | None,
        attributes: Mapping[str, Any],
        bodies: Sequence[str],
    ) -> tuple[Kernel | None, Expand | None]:
        """Tries the operator, the model's function, onnx's kernel, the function body.

        None of both for a node that only the fallback computes.
        """
        if operator is not None:
            bound = bind(operator.function, NodeContext(node, opset), attributes, bodies)
            return with_room(bound, operator.copies), None
        local = self._local(node)
        if local is not None:
            return None, self._expansion(node, opset, local)
        kernel = reference_kernel(node, opset, self._model.opsets)
        if kernel is not None:
            return kernel, None
        if has_body(node, opset):
            return None, self._expansion(node, opset, None)
        return None, None

    def _expansion(self, node: Node, opset: int, function: onnx.FunctionProto | None) -> Expand:
        """Returns what plans the function's body, once for each combination of input types."""
        plans: dict[tuple[str, ...], Plan] = {}

        def expand(inputs: Sequence[Value]) -> Plan:
            types = tuple(type_text(value) for value in inputs)
            if types not in plans:
                body = function or standard_function(node, self._model.opsets, inputs)
                called = instantiate(body, node, opset)
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


def _name(node: Node, opset: int) -> tuple[str, str, int]:
    return node.domain, node.op_type, opset


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
