"""One graph of the model and the kernels of its nodes, and how data flows from kernel to kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from tracer.graph.model import Node, bodies
from tracer.graph.operators import draws_numbers
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
    graph = nodes[0].scope.graph if nodes else None
    constant = {*around, *((weight.name for weight in graph.initializer) if graph else ())}
    for node in nodes:
        follows = constant.issuperset(needs(node)) and not bodies(node.proto)
        if (follows and not draws_numbers(node.op_type)) or node.op_type in _OF_SHAPES:
            constant.update(node.outputs)
    return constant


MOVERS = frozenset(
    {"Cast", "MemcpyFromHost", "MemcpyToHost", "ReorderInput", "ReorderOutput", "Transpose"}
)
"""Operators that a runtime inserts to change the layout, type or device of a tensor."""

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
        self._open.difference_update(behind)
        return list(behind)

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
    def of(cls, nodes: Sequence[Node], path: str) -> Graph:
        """Indexes the graph at `path`; tensors that depend on no input are constant."""
        makers = {name: node for node in nodes for name in node.outputs if name}
        readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        constant = set() if path else constants(nodes)  # a body may read the tensors around it
        return cls(makers, readers, {node.key: node for node in nodes}, constant)
