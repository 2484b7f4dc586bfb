"""Attribute kernels to the nodes of the user's graph.

Most tensors keep their name in the optimised graph. The kernel that computes such a tensor runs the
nodes between it and the nodes of earlier kernels. A layout rewrite renames tensors; there the name
of the kernel contains the tensor at the time of the rewrite, and its inputs and attributes show
what was fused later.

If the values of tensors are known (`tracer.records.tensor_match`), they decide which tensors a
kernel reads and computes, and overrule names.

A subgraph that a provider compiled is a kernel of many: it has the nodes of its parts.

A kernel that computes no tensor of the graph stays open. It belongs to the nodes of the kernel that
reads its result, since a runtime may expand one operator into many. A kernel that only moves data
leaves its nodes to the kernel that computed the data, and has no node.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import pandas as pd

from tracer.graph.model import Model, Node, bodies
from tracer.graph.operators import CONVERSIONS, draws_numbers, reads_integers, returns_integers
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel

UNCHANGING = frozenset({"Identity", "Dropout"})
"""Operators that return their input: a runtime drops them from a kernel with other nodes."""

_OF_SHAPES = frozenset({"Shape", "Size"})
"""Operators whose result does not depend on the values of their input."""


def needs(node: Node) -> tuple[str, ...]:
    """Returns the inputs of a node whose values matter, without absent optional inputs."""
    inputs = node.inputs[:1] if node.op_type == "CastLike" else node.inputs  # else only the type
    return tuple(name for name in inputs if name)


def constants(nodes: Sequence[Node], around: Set[str] = frozenset()) -> set[str]:
    """Returns the tensors that a runtime may compute when it loads the model.

    `nodes` are all nodes of a graph; `around` are such tensors of the graphs around it. They
    include tensors that depend only on shapes, since shapes may be fixed.
    """
    constant = set(around)
    if nodes:
        graph = nodes[0].scope.graph
        constant.update(weight.name for weight in graph.initializer)
        constant.update(weight.values.name for weight in graph.sparse_initializer)
    for node in nodes:
        follows = constant.issuperset(needs(node)) and not bodies(node.proto)
        if (follows and not draws_numbers(node.op_type)) or node.op_type in _OF_SHAPES:
            constant.update(node.outputs)
    return constant


_INSERTED = frozenset({"MemcpyFromHost", "MemcpyToHost", "ReorderInput", "ReorderOutput"})
"""Operators that no function of a model expands to."""
MOVERS = _INSERTED | {"Cast", "Transpose"}
"""Operators that a runtime inserts to change the layout, type or device of a tensor."""

_IN_FLOAT32 = "InsertedPrecisionFreeCast_"
"""Begins the name of a float32 tensor that onnxruntime computes in the place of a float16 one."""

_BEFORE_BLOCKS = "Reshape_token_"
"""Name of a Reshape that onnxruntime inserts before a Conv in the blocked layout."""


def moves(kernel: Kernel) -> bool:
    """Returns whether a kernel only moves data, as a runtime does by itself."""
    return kernel.op_type in MOVERS or kernel.name.startswith(_BEFORE_BLOCKS)


class Flow:
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

    def close(self, position: int) -> None:
        """Records that a kernel has its nodes."""
        self._open.discard(position)

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
        parts = [
            maker
            for maker in behind
            # what is laid out in another way before the first part is no part
            if self._kernels[maker].op_type not in _INSERTED or self.computed_by(maker) in behind
        ]
        self._open.difference_update(parts)
        return parts

    def _moves(self, position: int) -> bool:
        return moves(self._kernels[position])

    def _behind(self, position: int) -> list[int]:
        kernel = self._kernels[position]
        makers = (self._makers.get((kernel.scope, name)) for name in kernel.inputs)
        return [maker for maker in makers if maker is not None]


def same_operator(kernel: Kernel, node: Node) -> bool:
    """Returns whether a kernel has the operator of a node."""
    return (kernel.domain, kernel.op_type) == (node.domain, node.op_type)


@dataclass
class Graph:
    """One graph of the model: makers and readers of each tensor, and the kernel of each node.

    `equal` has the tensors of this graph with the values of a tensor of the runtime. `own` has the
    node, by the position of a kernel, whose name and operator the kernel has; `owners` has the
    kernels of each such node.
    """

    makers: dict[str, Node]
    readers: dict[str, list[Node]]
    by_key: dict[str, Node]
    constant: set[str]
    own: dict[int, Node] = field(default_factory=dict)
    owners: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    claimed: dict[str, int] = field(default_factory=dict)
    equal: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def maker(self, name: str) -> Node | None:
        """Returns the node that computes a tensor of the runtime, by its name."""
        return self.makers.get(name) or self.makers.get(name.removeprefix(_IN_FLOAT32))

    def survives(self, name: str) -> bool:
        """Returns whether the runtime computes a tensor under its own name and with its values."""
        return name in self.equal.get(name, ())

    def free(self, node: Node, position: int) -> bool:
        """Returns whether the kernel at `position` may have a node: no other kernel has it.

        A runtime may compute a node twice; then several kernels have its name.
        """
        owners = self.owners.get(node.key)
        return position in owners if owners else node.key not in self.claimed

    def call_after(self, position: int, kernel: Kernel) -> None:
        """Records that the kernel at `position` has name and operator of a node, if it has."""
        node = self.by_key.get(kernel.node or "")
        if node is not None and same_operator(kernel, node):
            self.own[position] = node
            self.owners[node.key].add(position)

    @classmethod
    def of(cls, nodes: Sequence[Node], path: str) -> "Graph":
        """Indexes the graph at `path`; tensors that depend on no input are constant."""
        makers = {name: node for node in nodes for name in node.outputs if name}
        readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        constant = set() if path else constants(nodes)  # a body may read the tensors around it
        return cls(makers, readers, {node.key: node for node in nodes}, constant)


SERVING = CONVERSIONS | {"Constant"}
"""Operators of nodes that only serve others: no kernel is called after one, if it has others."""


def main_first(
    model: Model, groups: Sequence[tuple[str, ...]], work: pd.DataFrame
) -> tuple[tuple[str, ...], ...]:
    """Returns `groups`, the nodes of each kernel, with the main node of each first.

    It is the node with the most MACs in `work` (columns `macs`, `flops` and `bytes_written` by node
    key). Without any, it is the node with the most flops that is neither a constant nor a
    conversion of a quantised graph, then the one that writes most. The other nodes keep their
    order.
    """
    nodes = {node.key: node for node in model.nodes}
    amounts = work[["macs", "flops", "bytes_written"]].fillna(0).astype("int64")
    weights = {
        str(key): (macs, nodes[str(key)].op_type not in SERVING, flops, written)
        for key, macs, flops, written in amounts.itertuples()
    }
    ordered = []
    for group in groups:
        main = [max(group, key=weights.__getitem__)] if len(group) > 1 else []
        ordered.append((*main, *(key for key in group if key not in main)))
    return tuple(ordered)


def attribute(
    model: Model, kernels: Sequence[Kernel], evidence: Evidence | None = None
) -> tuple[tuple[str, ...], ...]:
    """Returns the keys of the nodes of each kernel, in the order of the graph.

    `kernels` are in the order they ran; `evidence` is about the tensors of the main graph. A kernel
    that the runtime added, such as a change of layout, has no nodes. A node without a kernel was
    folded or removed. A kernel with `parts` has the nodes of all of them.
    """
    running = [part for kernel in kernels for part in kernel.parts or (kernel,)]
    each = iter(_attributed(model, running, evidence))
    index = {node.key: node.index for node in model.nodes}
    groups = []
    for kernel in kernels:
        own = [next(each) for _ in kernel.parts or (kernel,)]
        keys = dict.fromkeys(key for group in own for key in group)
        groups.append(tuple(sorted(keys, key=index.__getitem__)))
    return tuple(groups)


def _attributed(
    model: Model, kernels: Sequence[Kernel], evidence: Evidence | None
) -> tuple[tuple[str, ...], ...]:
    """Returns the nodes of kernels of which none was compiled of several."""
    graphs = _graphs(model, kernels, evidence)
    claims: list[list[Node]] = [[] for _ in kernels]
    flow = Flow(kernels)
    for position, kernel in enumerate(kernels):
        graph = graphs.get(kernel.scope)
        claimed = _claim(graph, kernel, position) if graph else []
        finished = None  # the earlier kernel of the node whose tensor this kernel completes
        if not claimed and graph is not None and not moves(kernel):
            makers = (maker.key for maker in map(graph.maker, kernel.outputs) if maker)
            finished = next((graph.claimed[key] for key in makers if key in graph.claimed), None)
        only_moves = moves(kernel) and not any(node.op_type in MOVERS for node in claimed)
        owner = flow.computed_by(position) if only_moves else position
        flow.pass_on(position)
        if finished is not None:
            claims[position] = claims[finished]
        claims[owner] += claimed
        if graph is not None and (position in graph.own or _returns_weight(graph, kernel)):
            flow.close(position)  # the node itself, or no node: of neither is another a part
        elif claimed or finished is not None:
            for part in flow.take_open_behind(owner):
                claims[part] = claims[owner]
    return_moved(graphs, kernels, claims)
    ordered = (sorted(nodes, key=lambda node: node.index) for nodes in claims)
    return tuple(tuple(node.key for node in nodes) for nodes in ordered)


def _graphs(
    model: Model, kernels: Sequence[Kernel], evidence: Evidence | None
) -> Mapping[str, Graph]:
    """Returns the graphs of the model by path, with what is known before kernels claim nodes."""
    paths, nodes = [scope.path for scope in model.scopes], model.nodes_by_graph
    graphs = {path: Graph.of(nodes.get(path, ()), path) for path in paths}
    if evidence is not None:
        unclear = evidence.uninformative.keys() | evidence.reordered
        graphs[""].equal = {n: e for n, e in evidence.equal.items() if n not in unclear}
    for position, kernel in enumerate(kernels):
        if kernel.scope in graphs:
            graphs[kernel.scope].call_after(position, kernel)
    return graphs


def _claim(graph: Graph, kernel: Kernel, position: int) -> list[Node]:
    """Returns the nodes of one kernel, and reserves them."""
    claimed: dict[str, Node] = {}
    begins = [graph.equal[name] for name in kernel.inputs if name in graph.equal]
    ends = {tensor for name in kernel.outputs for tensor in graph.equal.get(name, ())}
    bounded = bool(begins) and all(begins)
    begun = {tensor for tensors in begins for tensor in tensors}

    def stops(name: str) -> bool:  # a tensor at both ends is no boundary
        return name not in ends and (name in begun or graph.survives(name))

    for end in _proved(graph, kernel, list(named_ends(graph, kernel))):
        if end.key != kernel.node and not graph.free(end, position):
            continue
        alone = not kernel.outputs or (  # without tensors, only its name tells of its nodes
            not bounded
            and same_operator(kernel, end)
            and len(kernel.inputs) == len(end.inputs)  # unclaimed nodes before it were removed
        )
        for node in [end] if alone else _upstream(graph, end, position, stops):
            claimed[node.key] = node
    own = graph.own.get(position)
    if own is not None and own.key not in claimed:
        # Values may add nodes to a kernel, but not make another node of it.
        before = _upstream(graph, own, position, stops) if bounded else (own,)
        claimed = {node.key: node for node in before}
    if reads_integers(kernel.op_type):
        # stored integers that the kernel reads as they are: nothing folds their DequantizeLinear
        read = (name for node in claimed.values() for name in needs(node))
        makers = [graph.makers[n] for n in read if n in graph.constant and n in graph.makers]
        claimed |= {
            maker.key: maker
            for maker in makers
            if maker.op_type == "DequantizeLinear"
            and maker.outputs[0] not in kernel.inputs
            and graph.free(maker, position)
        }
    for key in claimed:
        graph.claimed.setdefault(key, position)
    computing = [node for node in claimed.values() if node.op_type not in UNCHANGING]
    return sorted(computing or claimed.values(), key=lambda node: node.index)


def _proved(graph: Graph, kernel: Kernel, named: list[Node]) -> list[Node]:
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
    return distinct(proved)


def _upstream(
    graph: Graph, end: Node, position: int, stops: Callable[[str], bool]
) -> Iterator[Node]:
    """Yields `end` and the nodes before it, up to nodes of others, constants and `stops`."""
    stack = [end]
    visited: set[str] = set()
    while stack:
        node = stack.pop()
        if node.key in visited or (node is not end and not graph.free(node, position)):
            continue
        visited.add(node.key)
        yield node
        for name in needs(node):
            maker = graph.makers.get(name)
            if maker is not None and name not in graph.constant and not stops(name):
                stack.append(maker)


_NCHWC = "_nchwc"
_SUM_INPUT = 3
"""Position of the tensor that a com.microsoft Conv adds to its result."""
_ACTIVATIONS = frozenset({"Relu", "LeakyRelu", "Sigmoid", "Tanh", "Clip", "HardSigmoid"})


def named_ends(graph: Graph, kernel: Kernel) -> Iterator[Node]:
    """Yields the last nodes of a kernel by its name and the names of its outputs."""
    ends = distinct(maker for maker in map(graph.maker, kernel.outputs) if maker is not None)
    if ends:
        yield from ends
    elif kernel.node in graph.by_key:
        if _returns_weight(graph, kernel):
            return
        node = graph.by_key[kernel.node]
        yield node
        if returns_integers(kernel.op_type) and not returns_integers(node.op_type):
            # the kernel quantises its result too
            activation = _only_reader(graph, node, _ACTIVATIONS)
            quantizer = _only_reader(graph, activation or node, frozenset({"QuantizeLinear"}))
            if quantizer is not None:
                yield quantizer
    elif kernel.name.endswith(_NCHWC):
        maker = graph.maker(kernel.name.removesuffix(_NCHWC))
        if maker is not None:
            yield from _extended(graph, kernel, maker)


def _returns_weight(graph: Graph, kernel: Kernel) -> bool:
    """Whether a kernel dequantises what the runtime quantised itself, and named after its node."""
    node = graph.by_key.get(kernel.node or "")
    return node is not None and kernel.op_type == "DequantizeLinear" != node.op_type


def _extended(graph: Graph, kernel: Kernel, node: Node) -> Iterator[Node]:
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


def _only_reader(graph: Graph, node: Node, kinds: frozenset[str]) -> Node | None:
    readers = [r for name in node.outputs for r in graph.readers.get(name, [])]
    if len(readers) == 1 and readers[0].op_type in kinds:
        return readers[0]
    return None


def distinct(nodes: Iterable[Node]) -> list[Node]:
    """Returns the nodes without repetitions: a node may have thousands of outputs."""
    return list({node.key: node for node in nodes}.values())


def return_moved(
    graphs: Mapping[str, Graph], kernels: Sequence[Kernel], claims: list[list[Node]]
) -> None:
    """Gives each kernel without nodes the node with its operator that passed its neighbours."""
    edges = _Edges(graphs, kernels)
    for position, kernel in enumerate(kernels):
        graph = graphs.get(kernel.scope)
        if claims[position] or graph is None or kernel.name.startswith(_IN_FLOAT32):
            continue  # casts of float16 that the runtime inserts are no nodes of the model
        for neighbour in edges.along(position):
            claimed, own = claims[neighbour], graph.own[neighbour]
            node = next((n for n in claimed if n is not own and same_operator(kernel, n)), None)
            if node is not None:
                claims[neighbour] = [n for n in claimed if n is not node]
            else:
                node = _passed(graph, kernel, neighbour, kernels)
            if node is not None:
                claims[position] = [node]
                graph.claimed[node.key] = position
                break


class _Edges:
    """The tensors between kernels that have no name of the model: who makes and who reads them."""

    def __init__(self, graphs: Mapping[str, Graph], kernels: Sequence[Kernel]) -> None:
        self._own = {position for graph in graphs.values() for position in graph.own}
        self._near: dict[int, list[int]] = defaultdict(list)
        makers: dict[tuple[str, str], int] = {}
        for position, kernel in enumerate(kernels):
            for name in kernel.inputs:
                maker = makers.get((kernel.scope, name))
                if maker is not None:
                    self._near[maker].append(position)
                    self._near[position].append(maker)
            known = graphs[kernel.scope].makers if kernel.scope in graphs else {}
            makers |= {(kernel.scope, n): position for n in kernel.outputs if n not in known}

    def along(self, start: int) -> Iterator[int]:
        """Yields the kernels with names of nodes that such tensors join to `start`, near first."""
        seen, queue = {start}, [start]
        for position in queue:
            for other in self._near[position]:
                if other in self._own and other not in seen:
                    seen.add(other)
                    queue.append(other)
                    yield other


def _passed(graph: Graph, kernel: Kernel, neighbour: int, kernels: Sequence[Kernel]) -> Node | None:
    """Returns the node with the kernel's operator before its neighbour in the model.

    Another kernel may have it too: a node that passes a fork is computed on both sides.
    """
    for name in graph.own[neighbour].inputs:
        node = graph.makers.get(name)
        if node is not None and same_operator(kernel, node) and node.key not in graph.owners:
            by = graph.claimed.get(node.key)
            if by is None or same_operator(kernels[by], node):
                return node
    return None
