"""Finds the tensors that a model stores, in all graphs and functions."""

from collections.abc import Iterator

import onnx

from tracer.graph.model import graphs, node_protos


def initializers(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yields the initializers of the graph and of every body inside it."""
    for graph in graphs(proto.graph):
        yield from graph.initializer


def stored_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yields all initializers, and the tensors in attributes of nodes, those of functions too."""
    yield from initializers(proto)
    owners: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    for owner in owners:
        for node in node_protos(owner):
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
