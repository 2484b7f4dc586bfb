"""Replace torch's metadata, which has stack traces with absolute paths, by module and source."""

import re
from collections.abc import Set

import onnx

from tracer.exporters.metadata import describe
from tracer.exporters.records import BATCH
from tracer.graph import provenance
from tracer.graph.model import bodies, graphs


def annotate(proto: onnx.ModelProto) -> None:
    """Gives nodes module path and source line, weights a mark; drops all that torch wrote."""
    for graph in graphs(proto.graph):
        marks = provenance.parameter_marks(graph)
        for node in graph.node:
            describe(node, provenance.module_of(node), provenance.source_of(node))
        for value in (*graph.input, *graph.output, *graph.value_info):
            del value.metadata_props[:]
        for weight in graph.initializer:
            del weight.metadata_props[:]
            if weight.name in marks:
                provenance.mark_parameters(weight, marks[weight.name])
        del graph.metadata_props[:]
    _complete(proto.graph)
    for node in proto.graph.node:
        _complete_bodies(node, {w.name for w in proto.graph.initializer if "." in w.name})
    del proto.metadata_props[:]


def _complete(graph: onnx.GraphProto) -> None:
    """Gives a node without module the module of its reader, or else of its producer.

    Torch has no module for nodes that compute sizes of a dynamic batch. A node between an input and
    an output belongs to the root.
    """
    readers = {name: node for node in reversed(graph.node) for name in node.input}
    producers = {name: node for node in graph.node for name in node.output}
    for nodes, names, neighbours in (
        (reversed(graph.node), "output", readers),
        (graph.node, "input", producers),
    ):
        for node in nodes:
            if provenance.module_of(node) is None:
                adjacent = [neighbours[n] for n in getattr(node, names) if n in neighbours]
                modules = (provenance.module_of(other) for other in adjacent)
                module = next((m for m in modules if m is not None), None)
                describe(node, module, provenance.source_of(node))
    for node in graph.node:
        if provenance.module_of(node) is None:
            describe(node, "", provenance.source_of(node))


def _complete_bodies(owner: onnx.NodeProto, weights: Set[str]) -> None:
    """Gives nodes of the bodies of `owner` the module of the weights they read, else its module.

    Torch writes no metadata on branches of `torch.cond`. `weights` are named by module.
    """
    for _, graph in bodies(owner):
        for node in graph.node:
            if provenance.module_of(node) is None:
                owners = {name.rpartition(".")[0] for name in node.input if name in weights}
                module = owners.pop() if len(owners) == 1 else provenance.module_of(owner)
                describe(node, module, provenance.source_of(node) or provenance.source_of(owner))
            _complete_bodies(node, weights)


def name_batch(proto: onnx.ModelProto) -> None:
    """Names the dynamic first dimension `batch`; a saved program has a symbol such as `s77`."""
    firsts = [v.type.tensor_type.shape.dim[:1] for v in proto.graph.input]
    symbols = {dim.dim_param for dims in firsts for dim in dims if dim.dim_param}
    if len(symbols) != 1:
        return
    word = re.compile(rf"\b{re.escape(symbols.pop())}\b")
    for graph in graphs(proto.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = word.sub(BATCH, dim.dim_param)
