"""Prepares a float model for quantisation, as onnxruntime advises: fold and fuse."""

import onnx

from tracer.errors import LimitError, ModelError
from tracer.executors.onnxruntime import node_names, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.encoding import encoded
from tracer.graph.model import Model, canonical_domain, node_protos
from tracer.graph.quantized import quantized_node
from tracer.quantization import metadata
from tracer.support.temporary import TemporaryFolder

_PROTOBUF_LIMIT = 2**31 - 1


def prepare(model: Model) -> onnx.ModelProto:
    """Returns a copy of `model`, weights included, for onnxruntime's quantizer.

    Basic optimisation folds constants, and BatchNormalization into the convolution before it, so
    that it is not quantised by itself. Nodes are named by their keys and keep module and source; a
    fused node is named after its first node. Raises ModelError for a model that is already
    quantised or does not run, LimitError for a model of more than 2 GB.
    """
    _refuse_quantized(model)
    with TemporaryFolder() as folder:
        path = folder / "prepared.onnx"
        options = OrtSettings(optimization="basic")
        sessions.Factory(model, node_names.serialize(model), options).open(optimized=path)
        proto = onnx.load(path)
    if proto.ByteSize() > _PROTOBUF_LIMIT:
        raise LimitError(f"{model.name}: quantising takes models of up to 2 GB")
    _rename(proto, model)
    proto.metadata_props.extend(model.proto.metadata_props)  # what sessions run has none
    keep_imports(proto, model)
    return onnx.shape_inference.infer_shapes(encoded(proto, model.name))


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
