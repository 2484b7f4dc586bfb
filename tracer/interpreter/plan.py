"""A graph prepared to be run many times: a kernel for each node, and when each value dies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from tracer.errors import ModelError, TracerError
from tracer.graph import tensor_type
from tracer.graph.model import Model, Node
from tracer.graph.tensor_type import TensorType
from tracer.interpreter import functions, values
from tracer.interpreter.binding import Context, Kernel, bind
from tracer.interpreter.fallback import reference_kernel
from tracer.interpreter.registry import Registry, standard
from tracer.interpreter.values import Value
from tracer.support.types import Array, type_text


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a plan: it has a kernel, or is expanded to a plan once its inputs are known."""

    node: Node
    opset: int
    kernel: Kernel | None
    expand: Callable[[Sequence[Value]], Plan] | None
    bodies: Mapping[str, Plan]
    frees: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A graph: `frees` of a step are the values that nothing reads after it."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[TensorType | None, ...]
    weights: Mapping[str, Array] = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)


Around = Callable[[Node, Kernel], Kernel]
"""Makes the kernel of a node from the one it has; the way in for other arithmetic."""


class Planner:
    """Makes the plans of one model's graphs.

    `front` holds operators of the user's own; `around` sees the kernel of every node of the model.
    """

    def __init__(
        self, model: Model, front: Registry, folder: Path | None, around: Around | None = None
    ) -> None:
        self._model = model
        self._front = front
        self._folder = folder
        self._around = around
        self._functions = functions.local_functions(model)
        self._nodes: dict[str, list[Node]] = defaultdict(list)
        for node in model.nodes:
            self._nodes[node.scope.path].append(node)

    def plan(self) -> Plan:
        """The plan of the main graph, with those of its bodies inside."""
        return self._graph(self._model.graph, "")

    def _graph(self, graph: onnx.GraphProto, path: str) -> Plan:
        nodes = self._nodes[path]
        outputs = tuple(value.name for value in graph.output)
        weights = {w.name: values.from_tensor(w, self._folder) for w in graph.initializer}
        for sparse in graph.sparse_initializer:
            weights[sparse.values.name] = values.from_sparse(sparse, self._folder)
        inputs = tuple(value.name for value in graph.input if value.name not in weights)
        frees = last_reads(nodes, inputs, outputs)
        steps = tuple(self._step(node, free) for node, free in zip(nodes, frees, strict=True))
        types = tuple(tensor_type.from_type_proto(value.type) for value in graph.output)
        return Plan(inputs, outputs, types, weights, steps)

    def _step(self, node: Node, frees: tuple[str, ...]) -> Step:
        opset = self._opset(node)
        bodies = {
            attribute.name: self._graph(attribute.g, f"{node.key}.{attribute.name}")
            for attribute in node.proto.attribute
            if attribute.HasField("g")
        }
        try:
            kernel, expand = self._computation(node, opset, tuple(bodies))
        except Exception as error:  # onnx's own operators check their attributes as they are made
            where = describe(self._model, node, opset)
            if isinstance(error, TracerError):
                raise type(error)(f"{where}: {error.what}", error.hint) from error
            raise ModelError(f"{where}: {error}") from error
        if kernel is not None and self._around is not None:
            kernel = self._around(node, kernel)
        return Step(node, opset, kernel, expand, bodies, frees)

    def _computation(
        self, node: Node, opset: int, bodies: Sequence[str]
    ) -> tuple[Kernel | None, Callable[[Sequence[Value]], Plan] | None]:
        """The user's operator, else the model's function, else ours, onnx's, its function body."""
        local = self._functions.get((node.domain, node.op_type, node.proto.overload))
        found = self._front.find(node.domain, node.op_type, opset)
        if found is None and local is None:
            found = standard().find(node.domain, node.op_type, opset)
        if found is not None:
            attributes = {
                a.name: values.from_attribute(a)
                for a in node.proto.attribute
                if a.name not in bodies
            }
            return bind(found.function, Context(node, opset), attributes, bodies), None
        if local is not None:
            return None, self._expansion(node, opset, local)
        kernel = reference_kernel(node, opset, self._model.opsets)
        if kernel is not None:
            return kernel, None
        if functions.has_body(node, opset):
            return None, self._expansion(node, opset, None)
        raise ModelError(
            "the operator has no implementation",
            "Give one to the Interpreter, in `operators`.",
        )

    def _expansion(
        self, node: Node, opset: int, function: onnx.FunctionProto | None
    ) -> Callable[[Sequence[Value]], Plan]:
        """Plans the function's body when it is first called with inputs of a type."""
        made: dict[tuple[str, ...], Plan] = {}

        def expand(inputs: Sequence[Value]) -> Plan:
            types = tuple(type_text(value) for value in inputs)
            if types not in made:
                body = function or functions.standard_function(node, self._model.opsets, inputs)
                inner = Planner(functions.instantiate(body, node, opset), self._front, None)
                inner._functions = self._functions
                made[types] = inner.plan()
            return made[types]

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
    """Model, node, operator and opset for messages."""
    return f"{model.name}: node '{node.key}' ({node.qualified_type}, opset {opset})"


def last_reads(
    nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str]
) -> list[tuple[str, ...]]:
    """For each node the values that die with it: read by nothing after it, nor outputs.

    Values of the graph itself count, not those captured from around it. A node reads what its
    bodies capture; a value that is never read dies with the node that makes it.
    """
    owned = set(inputs).union(*(node.outputs for node in nodes)) - {*outputs, ""}
    last: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in (*node.outputs, *reads(node.proto)):
            if name in owned:
                last[name] = index
    frees: list[list[str]] = [[] for _ in nodes]
    for name, index in last.items():
        frees[index].append(name)
    return [tuple(names) for names in frees]


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the values a node reads: its inputs, and what its bodies capture."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            inside = {v.name for v in graph.input} | {w.name for w in graph.initializer}
            inside |= {s.values.name for s in graph.sparse_initializer}
            inside.update(name for inner in graph.node for name in inner.output)
            named = (name for inner in graph.node for name in reads(inner))
            results = (value.name for value in graph.output)
            yield from (n for names in (named, results) for n in names if n not in inside)
