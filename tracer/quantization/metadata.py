"""Restores the node names, modules and sources that onnxruntime drops when it quantises."""

import onnx

_SUFFIX = "_quant"
"""Suffix that onnxruntime appends to the name of an operator that it quantises."""


def restore(proto: onnx.ModelProto, prepared: onnx.ModelProto) -> None:
    """Gives the nodes of `proto` the names and the metadata that they have in `prepared`.

    A new node gets the metadata of the node it reads from; one that reads an input or a weight of
    the model gets the metadata of the first node that reads from it.
    """
    original = {node.name: node for node in prepared.graph.node if node.name}
    taken = {node.name for node in proto.graph.node}
    for node in proto.graph.node:
        name = node.name.removesuffix(_SUFFIX)
        if name in original and (name == node.name or name not in taken):
            node.name = name
            del node.metadata_props[:]
            node.metadata_props.extend(original[name].metadata_props)
    pass_on(proto, set(original))
    keys = {entry.key for entry in prepared.metadata_props}
    missing = keys - {entry.key for entry in proto.metadata_props}
    proto.metadata_props.extend(e for e in prepared.metadata_props if e.key in missing)


def pass_on(proto: onnx.ModelProto, named: set[str]) -> None:
    """Gives nodes not in `named` the metadata of the node before, else of the node after."""
    makers: dict[str, onnx.NodeProto] = {}
    for node in proto.graph.node:
        if node.name not in named and not node.metadata_props:
            _copy(next((makers[n] for n in node.input if n in makers), None), node)
        makers.update((name, node) for name in node.output)
    readers: dict[str, onnx.NodeProto] = {}
    for node in reversed(proto.graph.node):
        if node.name not in named and not node.metadata_props:
            _copy(next((readers[n] for n in node.output if n in readers), None), node)
        readers.update((name, node) for name in node.input)


def _copy(source: onnx.NodeProto | None, target: onnx.NodeProto) -> None:
    if source is not None:
        target.metadata_props.extend(source.metadata_props)
