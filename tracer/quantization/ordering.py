"""Nodes in an order in which everything is made before it is read, by bodies too."""

from __future__ import annotations

from graphlib import TopologicalSorter

import onnx

from tracer.interpreter.plan import reads


def sort(graph: onnx.GraphProto) -> None:
    """Reorder the nodes of `graph`: onnxruntime sorts without regard to what bodies read."""
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    needed = {
        place: {makers[name] for name in reads(node) if name in makers}
        for place, node in enumerate(nodes)
    }
    if all(before < place for place, others in needed.items() for before in others):
        return
    order = list(TopologicalSorter(needed).static_order())
    del graph.node[:]
    graph.node.extend(nodes[place] for place in order)
