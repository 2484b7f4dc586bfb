"""Sorts nodes topologically, with regard to the tensors that subgraphs read."""

from graphlib import TopologicalSorter

import onnx

from tracer.interpreter.plan import reads


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
