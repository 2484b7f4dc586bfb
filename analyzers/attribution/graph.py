"""One graph of the model, and the kernels that its nodes belong to so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracer.analyzers.dependence import constants
from tracer.graph.model import Node
from tracer.records.trace import Kernel


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
