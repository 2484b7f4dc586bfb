"""Prepares a graph for many runs: a kernel for each node, and the values to free after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from tracer.errors import ModelError, TracerError
from tracer.graph import tensor_type
from tracer.graph.model import Model, Node
from tracer.graph.tensor_type import TensorType
from tracer.interpreter import functions, values
from tracer.interpreter.binding import Kernel, NodeContext, bind
from tracer.interpreter.fallback import reference_kernel
from tracer.interpreter.registry import Registry, standard
from tracer.interpreter.values import Value
from tracer.support.types import Array, type_text


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One node of a plan: a kernel, or `expand`, which plans a function body by input types.

    It reads and writes the values of these names; a fused step does the work of other nodes, too.
    `frees` are the values that no later step reads.
    """

    node: Node
    opset: int
    kernel: Kernel | None
    expand: Callable[[Sequence[Value]], Plan] | None
    bodies: Mapping[str, Plan]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    frees: tuple[str, ...] = ()

    @property
    def captures(self) -> tuple[str, ...]:
        """Every value that the step reads, itself or in its bodies."""
        return (*self.reads, *reads(self.node.proto)) if self.bodies else self.reads


@dataclass(frozen=True)
class Plan:
    """A graph prepared for many runs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[TensorType | None, ...]
    weights: Mapping[str, Array] = field(repr=False)
    steps: tuple[PlanStep, ...] = field(repr=False)


Around = Callable[[Node, Kernel], Kernel]
"""Returns the kernel that replaces a node's kernel; the seam for other arithmetic."""

Fuse = Callable[["Plan"], tuple[Sequence[PlanStep], Mapping[str, Array]]]
"""Returns steps that compute the outputs of a plan, and the constants that they read."""


class Planner:
    """Plans the graphs of one model.

    `own` holds the caller's operators; `around` may replace the kernel of any node.
    """

    def __init__(
        self, model: Model, own: Registry, folder: Path | None, around: Around | None = None
    ) -> None:
        self._model = model
        self._own = own
        self._folder = folder
        self._around = around
        self._functions = functions.local_functions(model)
        self._nodes: dict[str, list[Node]] = defaultdict(list)
        for node in model.nodes:
            self._nodes[node.scope.path].append(node)

    def plan(self) -> Plan:
        """Returns the plan of the main graph, which holds the plans of its bodies."""
        return self._graph(self._model.graph, "")

    def _graph(self, graph: onnx.GraphProto, path: str) -> Plan:
        nodes = self._nodes[path]
        outputs = tuple(value.name for value in graph.output)
        weights = {w.name: values.from_tensor(w, self._folder) for w in graph.initializer}
        for sparse in graph.sparse_initializer:
            weights[sparse.values.name] = values.from_sparse(sparse, self._folder)
        inputs = tuple(value.name for value in graph.input if value.name not in weights)
        steps = freeing([self._step(node) for node in nodes], inputs, outputs)
        types = tuple(tensor_type.from_type_proto(value.type) for value in graph.output)
        return Plan(inputs, outputs, types, weights, steps)

    def _step(self, node: Node) -> PlanStep:
        opset = self._opset(node)
        bodies = {
            attribute.name: self._graph(attribute.g, f"{node.key}.{attribute.name}")
            for attribute in node.proto.attribute
            if attribute.HasField("g")
        }
        try:
            kernel, expand = self._computation(node, opset, tuple(bodies))
        except Exception as error:  # onnx.reference checks attributes when it is constructed
            where = describe(self._model, node, opset)
            if isinstance(error, TracerError):
                raise type(error)(f"{where}: {error.what}", error.hint) from error
            raise ModelError(f"{where}: {error}") from error
        if kernel is not None and self._around is not None:
            kernel = self._around(node, kernel)
        return PlanStep(
            node, opset, kernel, expand, bodies, tuple(node.proto.input), tuple(node.proto.output)
        )

    def _computation(
        self, node: Node, opset: int, bodies: Sequence[str]
    ) -> tuple[Kernel | None, Callable[[Sequence[Value]], Plan] | None]:
        """Tries the caller's operator, the model's function, ours, onnx's, the function body."""
        local = self._functions.get((node.domain, node.op_type, node.proto.overload))
        operator = self._own.find(node.domain, node.op_type, opset)
        if operator is None and local is None:
            operator = standard().find(node.domain, node.op_type, opset)
        if operator is not None:
            attributes = {
                a.name: values.from_attribute(a)
                for a in node.proto.attribute
                if a.name not in bodies
            }
            return bind(operator.function, NodeContext(node, opset), attributes, bodies), None
        if local is not None:
            return None, self._expansion(node, opset, local)
        kernel = reference_kernel(node, opset, self._model.opsets)
        if kernel is not None:
            return kernel, None
        if functions.has_body(node, opset):
            return None, self._expansion(node, opset, None)
        raise ModelError(
            "the operator has no implementation", "Pass one to the Interpreter, in `operators`."
        )

    def _expansion(
        self, node: Node, opset: int, function: onnx.FunctionProto | None
    ) -> Callable[[Sequence[Value]], Plan]:
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


def describe(model: Model, node: Node, opset: int) -> str:
    """Returns model, node, operator and opset as text for messages."""
    return f"{model.name}: node '{node.key}' ({node.qualified_type}, opset {opset})"


def fused(plan: Plan, fuse: Fuse) -> Plan:
    """Returns a plan with the same outputs, of other steps."""
    steps, constants = fuse(plan)
    weights = {**plan.weights, **constants}
    return replace(plan, steps=freeing(steps, plan.inputs, plan.outputs), weights=weights)


def freeing(
    steps: Sequence[PlanStep], inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[PlanStep, ...]:
    """Returns the steps with the values to free after each: no later step reads them.

    Outputs of the graph and values captured from an outer graph are never freed. A value that no
    step reads is freed after the step that computes it.
    """
    owned = set(inputs).union(*(step.writes for step in steps)) - {*outputs, ""}
    last: dict[str, int] = {}
    for index, step in enumerate(steps):
        for name in (*step.writes, *step.captures):
            if name in owned:
                last[name] = index
    frees: list[list[str]] = [[] for _ in steps]
    for name, index in last.items():
        frees[index].append(name)
    return tuple(
        replace(step, frees=tuple(names)) for step, names in zip(steps, frees, strict=True)
    )


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the values a node reads: its inputs, and what its bodies capture."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            inside = {v.name for v in graph.input} | {w.name for w in graph.initializer}
            inside |= {s.values.name for s in graph.sparse_initializer}
            inside.update(name for inner in graph.node for name in inner.output)
            named = (name for inner in graph.node for name in reads(inner))
            results = (value.name for value in graph.output)
            yield from (n for names in (named, results) for n in names if n not in inside)
