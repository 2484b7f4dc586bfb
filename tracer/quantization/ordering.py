"""Sorts nodes topologically, with regard to the tensors that subgraphs read."""

from collections.abc import Iterator
from graphlib import TopologicalSorter

import onnx


def sort(graph: onnx.GraphProto) -> None:
    """Sorts the nodes of `graph`: onnxruntime's order ignores what subgraphs read."""
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needed = {
        index: {producers[name] for name in reads(node) if name in producers}
        for index, node in enumerate(nodes)
    }
    if all(before < index for index, sources in needed.items() for before in sources):
        return
    order = list(TopologicalSorter(needed).static_order())
    del graph.node[:]
    graph.node.extend(nodes[index] for index in order)


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
