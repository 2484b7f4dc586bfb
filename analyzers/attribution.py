"""Attribute kernels to the nodes of the user's graph.

Most tensors keep their name in the optimised graph. The kernel that computes such a tensor runs the
nodes between it and the nodes of earlier kernels. A layout rewrite renames tensors; there the name
of the kernel contains the tensor at the time of the rewrite, and its inputs and attributes show
what was fused later.

If the values of tensors are known (`tracer.records.tensor_match`), they decide which tensors a
kernel reads and computes, and overrule names.

A kernel that computes no tensor of the graph stays open. It belongs to the nodes of the kernel that
reads its result, since a runtime may expand one operator into many. A kernel that only moves data
leaves its nodes to the kernel that computed the data, and has no node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from analyzers.dependence import UNCHANGING, constants, needs
from tracer.graph.model import Model, Node
from tracer.graph.quantized import returns_integers
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel

_NCHWC = "_nchwc"
_SUM_INPUT = 3
"""Position of the tensor that a com.microsoft Conv adds to its result."""

_MOVERS = frozenset(
    {"Cast", "MemcpyFromHost", "MemcpyToHost", "ReorderInput", "ReorderOutput", "Transpose"}
)
"""Operators that a runtime inserts to change the layout, type or device of a tensor."""

_ACTIVATIONS = frozenset({"Relu", "LeakyRelu", "Sigmoid", "Tanh", "Clip", "HardSigmoid"})


def attribute(
    model: Model, kernels: Sequence[Kernel], evidence: Evidence | None = None
) -> tuple[tuple[str, ...], ...]:
    """Returns the keys of the nodes of each kernel, in the order of the graph.

    `kernels` are in the order they ran; `evidence` is about the tensors of the main graph. A kernel
    that the runtime added, such as a change of layout, has no nodes. A node without a kernel was
    folded or removed.
    """
    nodes: dict[str, list[Node]] = {scope.path: [] for scope in model.scopes}
    for node in model.nodes:
        nodes[node.scope.path].append(node)
    graphs = {path: _Graph.of(own, path) for path, own in nodes.items()}
    if evidence is not None:
        unclear = evidence.uninformative.keys() | evidence.reordered
        graphs[""].equal = {n: e for n, e in evidence.equal.items() if n not in unclear}
    claims: list[list[Node]] = [[] for _ in kernels]
    flow = _Flow(kernels)
    for position, kernel in enumerate(kernels):
        graph = graphs.get(kernel.scope)
        claimed = _claim(graph, kernel, position) if graph else []
        finished = None if claimed or graph is None else _finished(graph, kernel)
        moved = kernel.op_type in _MOVERS and all(n.op_type not in _MOVERS for n in claimed)
        owner = flow.computed_by(position) if moved else position
        flow.pass_on(position)
        if finished is not None:
            claims[position] = claims[finished]
        claims[owner] += claimed
        if claimed or finished is not None:
            for part in flow.take_open_behind(owner):
                claims[part] = claims[owner]
    ordered = (sorted(nodes, key=lambda node: node.index) for nodes in claims)
    return tuple(tuple(node.key for node in nodes) for nodes in ordered)


class _Flow:
    """The kernel that computed each tensor, and the open kernels: those without nodes so far."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = kernels
        self._makers: dict[tuple[str, str], int] = {}
        self._open: set[int] = set()

    def pass_on(self, position: int) -> None:
        """Records the outputs of a kernel, and opens it."""
        kernel = self._kernels[position]
        self._makers.update(((kernel.scope, name), position) for name in kernel.outputs)
        self._open.add(position)

    def computed_by(self, position: int) -> int:
        """Returns the kernel whose result this one moves; itself if unknown."""
        source = position
        while self._moves(source):
            makers = self._behind(source)
            if not makers:
                return position
            source = makers[0]
        return source

    def take_open_behind(self, position: int) -> list[int]:
        """Closes a kernel and the open kernels whose results it uses, and returns the latter.

        Kernels that only move data are no expansion of a node and stay without nodes.
        """
        behind: dict[int, None] = {}
        stack = [position]
        while stack:
            for maker in self._behind(stack.pop()):
                if maker in self._open and maker not in behind:
                    behind[maker] = None
                    stack.append(maker)
        self._open.discard(position)
        if all(self._moves(maker) for maker in behind):
            return []
        self._open.difference_update(behind)
        return list(behind)

    def _moves(self, position: int) -> bool:
        return self._kernels[position].op_type in _MOVERS

    def _behind(self, position: int) -> list[int]:
        kernel = self._kernels[position]
        makers = (self._makers.get((kernel.scope, name)) for name in kernel.inputs)
        return [maker for maker in makers if maker is not None]


@dataclass
class _Graph:
    """One graph of the model: makers and readers of each tensor, and the kernel of each node.

    `equal` has the tensors of this graph with the values of a tensor of the runtime.
    """

    makers: dict[str, Node]
    readers: dict[str, list[Node]]
    by_key: dict[str, Node]
    constant: set[str]
    claimed: dict[str, int] = field(default_factory=dict)
    equal: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def survives(self, name: str) -> bool:
        """Returns whether the runtime computes a tensor under its own name and with its values."""
        return name in self.equal.get(name, ())

    @classmethod
    def of(cls, nodes: Sequence[Node], path: str) -> _Graph:
        """Indexes the graph at `path`; tensors that depend on no input are constant."""
        makers = {name: node for node in nodes for name in node.outputs if name}
        readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        return cls(makers, readers, {node.key: node for node in nodes}, constants(nodes, path))


def _finished(graph: _Graph, kernel: Kernel) -> int | None:
    """Returns the earlier kernel of the node whose tensor this kernel completes."""
    makers = (graph.makers[name].key for name in kernel.outputs if name in graph.makers)
    owners = [graph.claimed[key] for key in makers if key in graph.claimed]
    return owners[0] if owners and kernel.op_type not in _MOVERS else None


def _claim(graph: _Graph, kernel: Kernel, position: int) -> list[Node]:
    """Returns the nodes of one kernel, and reserves them."""
    claimed: dict[str, Node] = {}
    begins = [graph.equal[name] for name in kernel.inputs if name in graph.equal]
    ends = {tensor for name in kernel.outputs for tensor in graph.equal.get(name, ())}
    bounded = bool(begins) and all(begins)
    begun = {tensor for tensors in begins for tensor in tensors}

    def stops(name: str) -> bool:  # a tensor at both ends is no boundary
        return name not in ends and (name in begun or graph.survives(name))

    for end in _proved(graph, kernel, list(_ends(graph, kernel))):
        if end.key in graph.claimed and end.key != kernel.node:
            continue  # unless the kernel has its name: a runtime may compute a node twice
        alone = not bounded and _same_operator(kernel, end)
        for node in [end] if alone else _upstream(graph, end, stops):
            claimed[node.key] = node
            graph.claimed.setdefault(node.key, position)
    computing = [node for node in claimed.values() if node.op_type not in UNCHANGING]
    return sorted(computing or claimed.values(), key=lambda node: node.index)


def _proved(graph: _Graph, kernel: Kernel, named: list[Node]) -> list[Node]:
    """Returns the last nodes of a kernel by the values of its outputs, or else by names.

    If several nodes compute the same values, the named nodes count; else the first, since later
    nodes only forward its values.
    """
    shown = [graph.equal[name] for name in kernel.outputs if graph.equal.get(name)]
    if not shown:
        return named
    proved: list[Node] = []
    for tensors in shown:
        agreed = [node for node in named if not set(tensors).isdisjoint(node.outputs)]
        makers = [graph.makers[tensors[0]]] if tensors[0] in graph.makers else []
        proved += agreed or makers
    return _distinct(proved)


def _distinct(nodes: Iterable[Node]) -> list[Node]:
    """Returns the nodes without repetitions: a node may have thousands of outputs."""
    return list({node.key: node for node in nodes}.values())


def _same_operator(kernel: Kernel, node: Node) -> bool:
    """Returns whether the kernel is just this node: unclaimed nodes before it were removed.

    No kernel computes an Identity, or a duplicate of another node.
    """
    same_type = (kernel.domain, kernel.op_type) == (node.domain, node.op_type)
    return same_type and len(kernel.inputs) == len(node.inputs)


def _ends(graph: _Graph, kernel: Kernel) -> Iterator[Node]:
    """Yields the last nodes of a kernel by its name and the names of its outputs."""
    ends = _distinct(graph.makers[name] for name in kernel.outputs if name in graph.makers)
    if ends:
        yield from ends
    elif kernel.node in graph.by_key:
        yield from _quantized(graph, kernel, graph.by_key[kernel.node])
    elif kernel.name.endswith(_NCHWC):
        tensor = kernel.name.removesuffix(_NCHWC)
        if tensor in graph.makers:
            yield from _extended(graph, kernel, graph.makers[tensor])


def _extended(graph: _Graph, kernel: Kernel, node: Node) -> Iterator[Node]:
    """Yields `node`, then the residual Add and the activation fused after it.

    The kernel keeps the name that it has when a Conv is rewritten to the blocked layout; fusions
    come later (onnxruntime's nchwc_transformer.cc).
    """
    yield node
    if len(kernel.inputs) > _SUM_INPUT:
        addition = _only_reader(graph, node, frozenset({"Add", "Sum"}))
        if addition is not None:
            yield addition
            node = addition
    if "activation" in kernel.attributes and node.op_type not in _ACTIVATIONS:
        activation = _only_reader(graph, node, _ACTIVATIONS)
        if activation is not None:
            yield activation


def _quantized(graph: _Graph, kernel: Kernel, node: Node) -> Iterator[Node]:
    """Yields `node`, then the QuantizeLinear after it if the kernel returns integers."""
    yield node
    if returns_integers(kernel.op_type) and not returns_integers(node.op_type):
        activation = _only_reader(graph, node, _ACTIVATIONS)
        quantizer = _only_reader(graph, activation or node, frozenset({"QuantizeLinear"}))
        if quantizer is not None:
            yield quantizer


def _only_reader(graph: _Graph, node: Node, kinds: frozenset[str]) -> Node | None:
    readers = [r for name in node.outputs for r in graph.readers.get(name, [])]
    if len(readers) == 1 and readers[0].op_type in kinds:
        return readers[0]
    return None


def _upstream(graph: _Graph, end: Node, stops: Callable[[str], bool]) -> Iterator[Node]:
    """Yields `end` and the nodes before it, up to claimed nodes, constants and `stops`."""
    stack = [end]
    visited: set[str] = set()
    while stack:
        node = stack.pop()
        if node.key in visited or (node.key in graph.claimed and node is not end):
            continue
        visited.add(node.key)
        yield node
        for name in needs(node):
            maker = graph.makers.get(name)
            if maker is not None and name not in graph.constant and not stops(name):
                stack.append(maker)
