"""Plans a graph for many runs: finds what computes each node, then schedules it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import onnx

from tracer.errors import ModelError, TracerError
from tracer.graph import footprint, tensor_type
from tracer.graph.model import Model, Node
from tracer.interpreter import functions, values
from tracer.interpreter.binding import Kernel, NodeContext, bind, with_room
from tracer.interpreter.constants import Room, once
from tracer.interpreter.fallback import reference_kernel
from tracer.interpreter.mapped_weights import leaving
from tracer.interpreter.plan import Expand, Plan, Task, describe, schedule
from tracer.interpreter.registry import Registry, standard
from tracer.interpreter.values import Value
from tracer.support.types import Array, type_text

Around = Callable[[Node, Kernel], Kernel]
"""Returns the kernel that replaces a node's kernel; the seam for other arithmetic."""


class Planner:
    """Plans the graphs of one model.

    `own` holds the caller's operators; `around` may replace the kernel of any node.
    """

    def __init__(
        self, model: Model, own: Registry, folder: Path | None, around: Around | None = None
    ) -> None:
        self._model = model
        self._own = own
        self._room = Room()
        self._folder = folder
        self._around = around
        self._is_large = footprint.is_large(model)
        self._functions = functions.local_functions(model)
        self._nodes: dict[str, list[Node]] = defaultdict(list)
        for node in model.nodes:
            self._nodes[node.scope.path].append(node)

    def plan(self) -> Plan:
        """Returns the plan of the main graph, which holds the plans of its bodies."""
        plan = self._graph(self._model.graph, self._model.root)
        for name in plan.captures:
            raise ModelError(f"{self._model.name}: no node computes the value '{name}'")
        return plan

    def _graph(self, graph: onnx.GraphProto, path: str) -> Plan:
        nodes = self._nodes[path]
        outputs = tuple(value.name for value in graph.output)
        weights = self._weights(graph)
        inputs = tuple(value.name for value in graph.input if value.name not in weights)
        types = tuple(tensor_type.from_type_proto(value.type) for value in graph.output)
        constants = {"", *weights}
        tasks = [self._task(node, constants) for node in nodes]
        return schedule(_postponed(tasks, constants), inputs, outputs, types, weights)

    def _weights(self, graph: onnx.GraphProto) -> dict[str, Array]:
        try:
            weights = {w.name: values.from_tensor(w, self._folder) for w in graph.initializer}
            for sparse in graph.sparse_initializer:
                weights[sparse.values.name] = values.from_sparse(sparse, self._folder)
        except TracerError as error:
            raise type(error)(f"{self._model.name}: {error.what}", error.hint) from error
        return weights

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
        try:
            kernel, expand = self._computation(node, opset, tuple(bodies))
        except Exception as error:  # onnx.reference checks attributes when it is constructed
            where = describe(self._model, (node,), opset)
            if isinstance(error, TracerError):
                raise type(error)(f"{where}: {error.what}", error.hint) from error
            raise ModelError(f"{where}: {error}") from error
        ours = self._is_ours(node, opset)
        if kernel is not None and self._around is not None:
            plain, kernel = kernel, self._around(node, kernel)
            ours = ours and kernel is plain
        if kernel is not None and ours and not bodies and constants.issuperset(node.inputs):
            kernel = once(kernel, self._room)
            constants.update(node.outputs)
        if kernel is not None and self._is_large:
            kernel = leaving(kernel)
        return Task((node,), opset, kernel, expand, bodies, node.inputs, node.outputs)

    def _is_ours(self, node: Node, opset: int) -> bool:
        name = (node.domain, node.op_type, opset)
        return self._own.find(*name) is None and standard().find(*name) is not None

    def _computation(
        self, node: Node, opset: int, bodies: Sequence[str]
    ) -> tuple[Kernel | None, Expand | None]:
        """Tries the caller's operator, the model's function, ours, onnx's, the function body."""
        local = self._functions.get((node.domain, node.op_type, node.proto.overload))
        operator = self._own.find(node.domain, node.op_type, opset)
        if operator is None and local is None:
            operator = standard().find(node.domain, node.op_type, opset)
        if operator is not None:
            attributes = {
                a.name: values.from_attribute(a, self._folder)
                for a in node.proto.attribute
                if a.name not in bodies
            }
            bound = bind(operator.function, NodeContext(node, opset), attributes, bodies)
            return with_room(bound, operator.copies), None
        if local is not None:
            return None, self._expansion(node, opset, local)
        kernel = reference_kernel(node, opset, self._model.opsets)
        if kernel is not None:
            return kernel, None
        if functions.has_body(node, opset):
            return None, self._expansion(node, opset, None)
        raise ModelError(
            "the operator has no implementation", "Write one: --operators FILE.py computes it."
        )

    def _expansion(self, node: Node, opset: int, function: onnx.FunctionProto | None) -> Expand:
        """Returns what plans the function's body, once for each combination of input types."""
        plans: dict[tuple[str, ...], Plan] = {}

        def expand(inputs: Sequence[Value]) -> Plan:
            types = tuple(type_text(value) for value in inputs)
            if types not in plans:
                body = function or functions.standard_function(node, self._model.opsets, inputs)
                inner = Planner(functions.instantiate(body, node, opset), self._own, None)
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
