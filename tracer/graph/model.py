"""A checked model and its nodes, each with a stable key.

Local functions are inlined, so every node is an operator that runs. The nodes include those
inside the bodies of If, Loop and Scan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import EncodeError, Message
from msgspec import Struct

from tracer.errors import LimitError
from tracer.graph import operators, provenance, user_operators
from tracer.graph.operators import ONNX_DOMAINS, QONNX_DOMAIN, QONNX_DOMAINS

IR_WITH_UNLISTED_WEIGHTS = 4
"""The first IR version in which an initializer need not be listed as a graph input too."""
Address = tuple[str, str]
"""A tensor: the path of the graph that defines it, and its name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A graph and its outer graphs; names resolve from the inside out.

    `path` is '' for the main graph, else `<key of the owner>.<attribute>`. `owner` is the node
    whose body the graph is, None for the main graph.
    """

    graph: onnx.GraphProto
    parent: Scope | None = None
    owner: Node | None = None
    path: str = ""

    def outward(self) -> Iterator[Scope]:
        """Yields this scope, then each outer one."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class Node(Struct, frozen=True):  # there are many: a dataclass takes ten times as long to make
    """One operator of the user's graph.

    `inputs` and `outputs` name tensors; '' is an optional one that is left out. A node of a body
    without a module or source of its own has those of the body's owner.
    """

    key: str
    index: int
    op_type: str
    domain: str
    proto: onnx.NodeProto
    scope: Scope
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str | None = None
    source: str | None = None

    def __repr__(self) -> str:
        return f"Node({self.key!r}, {self.qualified_type}, {self.inputs} -> {self.outputs})"

    @property
    def qualified_type(self) -> str:
        """`Conv`, or `com.microsoft.FusedConv` outside the standard domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def standard_type(self) -> str:
        """The operator of ONNX that this one is, in whichever domain; '' for an operator of others.

        Its type and domain are never compared by hand: onnxruntime writes some in its own domain.
        """
        is_standard = not self.domain or self.qualified_type in operators.TWINS
        return self.op_type if is_standard else ""

    @property
    def outermost(self) -> Node:
        """The node of the main graph that this one is, or in whose bodies it is."""
        owner = self.scope.owner
        return self if owner is None else owner.outermost

    def has_input(self, index: int) -> bool:
        """Whether the input is present: an optional one may be left out."""
        return len(self.inputs) > index and bool(self.inputs[index])


@dataclass(frozen=True)
class StandIn:
    """A model in the operators of onnxruntime that computes what another model says.

    `origins` has, by the key of a node of `model`, the key of the node that it is a part of.
    """

    model: Model = field(repr=False)
    origins: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Model:
    """A checked ONNX model without its external data.

    `proto` has its local functions inlined and must not be modified. `path` is the model's file,
    whose folder holds the external data; None for a model built in memory. `root` is the path of
    the main graph: '' but for the body of an operator, which has the key of its node. `subject` is
    what the user named, if not the file. `notes` say what was assumed when it was opened.
    `operators` are those of a user's own. `stand_in` is what onnxruntime runs in its place.
    """

    proto: onnx.ModelProto = field(repr=False)
    path: Path | None
    sha256: str
    keys: tuple[str, ...] = field(repr=False)
    root: str = ""
    subject: str | None = None
    notes: tuple[str, ...] = field(default=(), repr=False)
    operators: user_operators.UserOperators = field(default=user_operators.NONE, repr=False)
    stand_in: StandIn | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, proto: onnx.ModelProto, path: Path | None = None, subject: str | None = None
    ) -> Model:
        """Returns a model that is not checked: onnxruntime or tracer made it of a checked one."""
        return cls(proto, path, "", expanded_keys(proto), subject=subject)

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: it finds nodes and tensors again by itself."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def name(self) -> str:
        """What the user named, for messages."""
        if self.subject is not None:
            return self.subject
        return str(self.path) if self.path is not None else "<model in memory>"

    @property
    def folder(self) -> Path | None:
        """The folder of the model's external data; None for a model built in memory."""
        return None if self.path is None else self.path.parent

    @property
    def executed(self) -> Model:
        """What onnxruntime runs: the stand-in, or the model itself."""
        return self if self.stand_in is None else self.stand_in.model

    def own_nodes(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Returns the nodes of this model that nodes of `executed` are, or are parts of."""
        if self.stand_in is None:
            return tuple(keys)
        origins = self.stand_in.origins
        return tuple(dict.fromkeys(origins[key] for key in keys if key in origins))

    @property
    def graph(self) -> onnx.GraphProto:
        """The main graph."""
        return self.proto.graph

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, parents before the nodes of their bodies, in the order of the file."""
        return self._walked[0]

    @property
    def all_scopes(self) -> Sequence[Scope]:
        """The main graph and every body as `graphs` has them: bodies of one path may be several."""
        return self._walked[1]

    @cached_property
    def _walked(self) -> tuple[tuple[Node, ...], Sequence[Scope]]:
        scopes = [Scope(self.proto.graph, path=self.root)]
        return tuple(_walk(scopes[0], enumerate(self.keys), scopes)), scopes

    @cached_property
    def nodes_by_graph(self) -> Mapping[str, Sequence[Node]]:
        """The nodes of each graph that has any, by its path."""
        nodes: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            nodes[node.scope.path].append(node)
        return dict(nodes)

    @cached_property
    def functions(self) -> Mapping[tuple[str, str, str], onnx.FunctionProto]:
        """The local functions that are not inlined, by their `signature`."""
        return {signature(function): function for function in self.proto.functions}

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """The main graph and every body, each once, in the order of the nodes."""
        scopes = {node.scope.path: node.scope for node in self.nodes}
        for scope in self.all_scopes:  # a body without nodes still has outputs
            scopes.setdefault(scope.path, scope)
        return tuple(scopes.values())

    @cached_property
    def dataflow(self) -> Dataflow:
        """The tensors of the model, with the nodes that compute and read each."""
        return Dataflow.of(self)

    @cached_property
    def opsets(self) -> dict[str, int]:
        """The imported version of each domain by its canonical name; the standard domain is ''."""
        return {canonical_domain(o.domain): o.version for o in self.proto.opset_import}

    @cached_property
    def inputs(self) -> tuple[onnx.ValueInfoProto, ...]:
        """The inputs to feed: graph inputs that are not initializers (old exporters list both)."""
        weights = {i.name for i in self.graph.initializer}
        weights |= {s.values.name for s in self.graph.sparse_initializer}
        return tuple(v for v in self.graph.input if v.name not in weights)


@dataclass(frozen=True)
class Dataflow:
    """The tensors of a model.

    `names` has the names that each graph defines, by path; `makers` and `readers` the nodes that
    compute and read each tensor; `results` the outputs of the main graph and of bodies.
    """

    names: Mapping[str, frozenset[str]]
    makers: Mapping[Address, Node]
    readers: Mapping[Address, tuple[Node, ...]]
    results: frozenset[Address]

    @classmethod
    def of(cls, model: Model) -> Dataflow:
        """Indexes the tensors of `model`; `Model.dataflow` keeps the result."""
        makers = {(n.scope.path, name): n for n in model.nodes for name in n.outputs if name}
        names = {scope.path: source_names(scope.graph) for scope in model.scopes}
        for path, name in makers:
            names[path].add(name)
        frozen = {path: frozenset(tensors) for path, tensors in names.items()}
        readers: dict[Address, list[Node]] = {}
        for node in model.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    readers.setdefault(address_in(frozen, name, node.scope), []).append(node)
        results = (
            address_in(frozen, value.name, scope)
            for scope in model.scopes
            for value in scope.graph.output
        )
        of_each = {at: tuple(nodes) for at, nodes in readers.items()}
        return cls(frozen, makers, of_each, frozenset(results))

    def address(self, name: str, scope: Scope) -> Address:
        """Returns the tensor called `name` in `scope`: names resolve from the inside out."""
        return address_in(self.names, name, scope)

    def read(self, node: Node) -> Iterator[Address]:
        """Returns the tensors that `node` reads, each once, without the reads of its bodies."""
        return (self.address(name, node.scope) for name in dict.fromkeys(node.inputs) if name)

    def outputs_of(self, node: Node) -> Iterator[Address]:
        """Returns the tensors that `node` computes."""
        return ((node.scope.path, name) for name in node.outputs if name)


def address_in(names: Mapping[str, Container[str]], name: str, scope: Scope) -> Address:
    """Returns the tensor called `name` in `scope`; `names` has those of each graph, by its path."""
    for outer in scope.outward() if scope.parent is not None else ():
        if name in names.get(outer.path, ()):
            return outer.path, name
    return scope.path, name


def source_names(graph: onnx.GraphProto) -> set[str]:
    """Returns the inputs and weights of a graph: what no node computes."""
    names = {value.name for value in graph.input} | {weight.name for weight in graph.initializer}
    return names | {weight.values.name for weight in graph.sparse_initializer}


def describe(model: Model, nodes: Sequence[Node], opset: int) -> str:
    """Returns model, nodes, operators and opset as text for messages."""
    keys = ", ".join(f"'{node.key}'" for node in nodes)
    types = ", ".join(node.qualified_type for node in nodes)
    return f"{model.name}: node{'s' * (len(nodes) > 1)} {keys} ({types}, opset {opset})"


def canonical_domain(domain: str) -> str:
    """Returns '' for both names of the standard domain, and one name for the names of QONNX's."""
    if domain in QONNX_DOMAINS:
        return QONNX_DOMAIN
    return "" if domain in ONNX_DOMAINS else domain


def encoded(proto: Message, name: str, *, sorted_maps: bool = False) -> bytes:
    """Returns `proto` as bytes; `name` is that of its model, for the error.

    `sorted_maps` makes the bytes of equal protobufs equal. Raises LimitError beyond 2 GiB, and
    where the memory does not suffice: protobuf does not tell which.
    """
    try:
        return proto.SerializeToString(deterministic=sorted_maps)
    except (EncodeError, MemoryError) as error:
        raise LimitError(
            f"{name}: the model is larger than a protobuf can be, 2 GiB, or than the memory left",
            "Store its weights as external data, or raise --max-memory.",
        ) from error


def expanded_keys(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Returns a unique key per node in the order of `Model.nodes`.

    A key is the node's name if it is unique in its graph, else `OpType_<index>`. The keys of its
    outer nodes precede it: `call/inner`, and `If_3.then_branch/inner` for a body.
    """
    return tuple(expansion(proto, ()))


def expansion(
    proto: onnx.ModelProto, functions: Sequence[onnx.FunctionProto]
) -> dict[str, tuple[onnx.NodeProto, ...]]:
    """Returns the function calls around every node, innermost first, by its key.

    Calls of `functions` are expanded in place.
    """
    called = {signature(function): function.node for function in functions}
    around: dict[str, tuple[onnx.NodeProto, ...]] = {}

    def expand(
        nodes: Sequence[onnx.NodeProto], path: str, calls: tuple[onnx.NodeProto, ...]
    ) -> None:
        for node, name in zip(nodes, _unique_names(nodes), strict=True):
            key = path + name
            body = called.get(signature(node)) if called else None
            if body is not None:
                expand(body[:], f"{key}/", (node, *calls))
                continue
            while key in around:  # a name equal to the path of another node
                key += "_"
            around[key] = calls
            for attribute, graph in bodies(node):
                expand(graph.node[:], f"{key}.{attribute}/", calls)

    expand(proto.graph.node[:], "", ())
    return around


def signature(called: onnx.NodeProto | onnx.FunctionProto) -> tuple[str, str, str]:
    """Returns domain, name and overload: of a function, and of the nodes that call it."""
    name = called.op_type if isinstance(called, onnx.NodeProto) else called.name
    return canonical_domain(called.domain), name, called.overload


def _unique_names(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    given = [node.name for node in nodes]
    if len({*given, ""}) > len(given):
        return given
    own = {name for name, count in Counter(given).items() if count == 1 and name}
    taken = set(own)
    names = []
    for index, name in enumerate(given):
        if name not in own:
            name = f"{nodes[index].op_type}_{index}"
            while name in taken:  # the name of another node
                name += "_"
            taken.add(name)
        names.append(name)
    return names


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yields a graph and every body inside it."""
    yield graph
    for node in graph.node:
        for _, body in bodies(node):
            yield from graphs(body)


def node_protos(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yields the nodes of a graph and of its bodies, in the order of `Model.nodes`."""
    for node in graph.node:
        yield node
        for _, body in bodies(node):
            yield from node_protos(body)


def bodies(node: onnx.NodeProto) -> Sequence[tuple[str, onnx.GraphProto]]:
    """Returns attribute name and graph of each body of a node."""
    attributes = node.attribute
    if not attributes:
        return ()
    found = []
    for attribute in attributes[:]:
        if attribute.HasField("g"):
            found.append((attribute.name, attribute.g))
        if attribute.graphs:
            found += [(attribute.name, graph) for graph in attribute.graphs]
    return found


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the tensors that a node reads: its inputs, and what its bodies read from outside."""
    yield from filter(None, node.input)
    for _, body in bodies(node):
        inside = source_names(body).union(*(inner.output for inner in body.node))
        read = [name for inner in body.node for name in names_read(inner)]
        read += [value.name for value in body.output]
        yield from (name for name in read if name not in inside)


def _walk(scope: Scope, keys: Iterator[tuple[int, str]], scopes: list[Scope]) -> Iterator[Node]:
    """Yields the nodes of a graph and of its bodies; adds the bodies to `scopes`."""
    owner = scope.owner
    for proto, (index, key) in zip(scope.graph.node[:], keys, strict=False):
        module, source = provenance.origin_of(proto)
        if owner is not None:
            module = owner.module if module is None else module
            source = owner.source if source is None else source
        domain, reads, writes = proto.domain, tuple(proto.input[:]), tuple(proto.output[:])
        domain = canonical_domain(domain) if domain else ""
        node = Node(key, index, proto.op_type, domain, proto, scope, reads, writes, module, source)
        yield node
        for attribute, graph in bodies(proto):
            scopes.append(Scope(graph, scope, node, f"{key}.{attribute}"))
            yield from _walk(scopes[-1], keys, scopes)
