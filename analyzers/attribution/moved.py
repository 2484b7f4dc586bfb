"""Give kernels the nodes that a runtime moved: across data movements, or data movements themselves.

onnxruntime swaps a node and its neighbours where the result stays the same: a Transpose passes a
Sqrt, a DequantizeLinear passes a Reshape. The tensor between them then exists in no model. The
neighbours keep names and operators, so the kernel beside them is the node that passed them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tracer.analyzers.attribution.graph import Graph, same_operator
from tracer.graph.model import Node
from tracer.records.trace import Kernel


def return_moved(
    graphs: Mapping[str, Graph], kernels: Sequence[Kernel], claims: list[list[Node]]
) -> None:
    """Gives each kernel without nodes the node with its operator that passed its neighbours."""
    edges = _Edges(graphs, kernels)
    for position, kernel in enumerate(kernels):
        graph = graphs.get(kernel.scope)
        if claims[position] or graph is None:
            continue
        for neighbour in edges.along(position):
            node = _extra(graph, kernel, neighbour, claims[neighbour])
            if node is not None:
                claims[neighbour] = [n for n in claims[neighbour] if n is not node]
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


def _extra(graph: Graph, kernel: Kernel, neighbour: int, claimed: Sequence[Node]) -> Node | None:
    """Returns the node with the kernel's operator that its neighbour has beside its own."""
    own = graph.own[neighbour]
    return next((n for n in claimed if n is not own and same_operator(kernel, n)), None)


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
