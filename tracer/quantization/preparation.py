"""Prepares a float model for quantisation, as onnxruntime advises: fold and fuse."""

from pathlib import Path

import onnx
from onnx.external_data_helper import load_external_data_for_model

from tracer.errors import ModelError
from tracer.executors.onnxruntime import node_names, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import footprint
from tracer.graph.encoding import encoded
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, canonical_domain, node_protos
from tracer.graph.operators import quantized_node
from tracer.quantization import metadata


def prepare(model: Model, folder: Path) -> onnx.ModelProto:
    """Returns a copy of `model` for onnxruntime's quantizer, with its weights.

    The weights of a large model are external data in `folder`.

    Basic optimisation folds constants, and BatchNormalization into the convolution before it, so
    that it is not quantised by itself. Nodes are named by their keys and keep module and source; a
    fused node is named after its first node. Raises ModelError for a model that is already
    quantised or does not run.
    """
    _refuse_quantized(model)
    path = folder / "optimized.onnx"
    options = OrtSettings(optimization="basic")
    sessions.Factory.of(model, options).open(optimized=path)
    proto = onnx.load(path, load_external_data=False)
    _list_inputs_alone(proto, model)
    _rename(proto, model)
    proto.metadata_props.extend(model.proto.metadata_props)  # what sessions run has none
    keep_imports(proto, model)
    if not footprint.is_large(model):
        load_external_data_for_model(proto, str(folder))
        return onnx.shape_inference.infer_shapes(encoded(proto, model.name))
    path.write_bytes(encoded(proto, model.name))
    onnx.shape_inference.infer_shapes_path(path, path)
    return onnx.load(path, load_external_data=False)


def keep_imports(proto: onnx.ModelProto, model: Model) -> None:
    """Removes the opsets of unused domains: onnxruntime lists all domains that it knows."""
    used = {canonical_domain(node.domain) for node in node_protos(proto.graph)} | {""}
    versions = {
        canonical_domain(entry.domain): entry.version
        for entry in proto.opset_import
        if canonical_domain(entry.domain) in used | set(model.opsets)
    }
    del proto.opset_import[:]
    for domain, version in versions.items():
        proto.opset_import.add(domain=domain, version=version)


def _refuse_quantized(model: Model) -> None:
    node = quantized_node(model)
    if node is not None:
        raise ModelError(
            f"{model.name}: it is quantised already: node '{node.key}' is a {node.op_type}",
            "Give the float model.",
        )


def _list_inputs_alone(proto: onnx.ModelProto, model: Model) -> None:
    """Takes weights out of the list of inputs: folding adds some, and makes others needless."""
    proto.ir_version = max(proto.ir_version, IR_WITH_UNLISTED_WEIGHTS)
    inputs = {value.name for value in model.inputs}
    kept = [value for value in proto.graph.input if value.name in inputs]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del proto.graph.input[:]
    proto.graph.input.extend(copies)


def _rename(proto: onnx.ModelProto, model: Model) -> None:
    """Renames nodes from names that are safe for onnxruntime to keys; restores metadata."""
    own = {node.key: node.proto.metadata_props for node in model.nodes}
    named = set()
    for node in node_protos(proto.graph):
        key = node_names.named_node(model, node.name)
        node.name = node_names.original(model, node.name)
        if key is not None:
            named.add(node.name)
            del node.metadata_props[:]
            node.metadata_props.extend(own[key])
    metadata.pass_on(proto, named)
